"""Hardware multipliers that replace ``celosia.hdl.arithmetic.multiplier.Multiplier``."""

import re
import textwrap
from dataclasses import dataclass
from fractions import Fraction

from celosia.fpga.table_product import row_product, table_product
from celosia.fpga.templates import template

_MODULE = re.compile(
    r"^module ((?:\w+_)?Multiplier(?:_\d+)?) \((.*?)^\);.*?^endmodule\n", re.MULTILINE | re.DOTALL
)
_OPERAND = re.compile(r"input +wire +(?:\[(\d+):0\] )?[ab]\b")

_TIMES = re.compile(r"assign (\w+) = \$signed\(left\) \* \$signed\(right\);")

_ECP5_WIDTH = 18

# Four multipliers share four enables and four clears (FPGA-TN-02205). One of each is constant where
# multipliers have their own, so that three such are all that the places of four can hold.
_CONTROLLED = Fraction(4, 3)

_ECP5 = template("multiplier_ecp5")


@dataclass(frozen=True)
class OwnMultiplier:
    """Verilog of a :class:`Multiplier` in two versions: as a hardware multiplier, or of LUTs."""

    widths: tuple[int, int]
    """Widths of the operands (bits)."""
    tables: str
    """Verilog of the module made of LUTs."""
    own: str
    """Verilog of the module with the hardware multiplier, under the name of :func:`own_name`."""
    places: Fraction
    """Number of the device's multipliers that the module occupies; above 1 if it blocks others."""


def own_name(name: str) -> str:
    """Return the name of the hardware multiplier module that replaces the module ``name``."""
    return f"{name}_own"


def find_multipliers(verilog: str, family: str) -> dict[str, OwnMultiplier]:
    """Return the :class:`Multiplier` modules that an FPGA's hardware multipliers can implement.

    The result maps a module's name to two versions of its Verilog, with a hardware multiplier and
    with LUTs. The result is empty if the family is not ``ecp5``, whose MULT18X18D multiplies
    operands of at most 18 bits.
    """
    multipliers = {}
    if family == "ecp5":
        for module in _MODULE.finditer(verilog):
            a, b = (int(width or 0) + 1 for width in _OPERAND.findall(module[2]))
            if max(a, b) <= _ECP5_WIDTH:
                multipliers[module[1]] = OwnMultiplier(
                    (a, b),
                    with_table_product(module[0], module[1], a, b, family),
                    _ecp5(module[1], module[2], a, b),
                    _CONTROLLED if all(_controls(module[2])) else Fraction(1),
                )
    return multipliers


def with_multipliers(verilog: str, family: str) -> str:
    """Return a design's Verilog with hardware multipliers in its :class:`Multiplier` modules.

    All modules that :func:`find_multipliers` returns are changed, even if the device has too few
    multipliers. Yosys does not flatten the changed modules.
    """
    own = find_multipliers(verilog, family)

    def text(module: re.Match[str]) -> str:
        name = module[1]
        if name not in own:
            return module[0]
        own_text = own[name].own.replace(f"module {own_name(name)} (", f"module {name} (")
        # Without operators there is nothing to synthesize.
        own_text = re.sub(r"= ([ab]) << (\d+);", _padded, own_text)
        own_text = re.sub(r"= product >>> (\d+);", r"= product[35:\1];", own_text)
        return own_text.replace("\nmodule ", "\n(* keep_hierarchy *)\nmodule ", 1)

    return _MODULE.sub(text, verilog)


def _padded(shift: re.Match[str]) -> str:
    zeros = int(shift[2])
    return f"= {{{shift[1]}, {zeros}'b0}};" if zeros else f"= {shift[1]};"


def with_table_product(text: str, name: str, a_width: int, b_width: int, family: str) -> str:
    """Return the Verilog of a :class:`Multiplier` module whose product is computed by LUTs.

    ``text`` is the Verilog of the module ``name`` with operands of ``a_width`` and ``b_width``
    bits. For ``ecp5``, the design must also contain the Verilog module
    :data:`celosia.fpga.table_product.ROWS`.
    """
    product = f"{name}_product"
    # A row of partial products for each bit of the narrower operand.
    a, b = ("left", "right") if a_width >= b_width else ("right", "left")
    tables, count = _TIMES.subn(rf"{product} tables (.a({a}), .b({b}), .p(\1));", text)
    assert count == 1, name
    make = table_product if family == "ecp5" else row_product
    return tables + make(product, *sorted((a_width, b_width), reverse=True))


def _ecp5(name: str, ports: str, a_width: int, b_width: int) -> str:
    # Operands use the upper bits of the inputs: in the lower bits, the sign would need extra wires.
    a_zeros, b_zeros = _ECP5_WIDTH - a_width, _ECP5_WIDTH - b_width
    pins = [
        f".{port}{bit}({signal}[{bit}])"
        for port, signal, count in (("A", "left", 18), ("B", "right", 18), ("P", "product", 36))
        for bit in range(count)
    ]
    en, clear = _controls(ports)
    return _ECP5.format(
        name=own_name(name),
        behavioural=name,
        ports=re.sub(r"\breg\b", "wire", ports),
        a_zeros=a_zeros,
        b_zeros=b_zeros,
        zeros=a_zeros + b_zeros,
        en=en or "1'b1",
        move="1'b1" if clear else en or "1'b1",
        clear=clear or "1'b0",
        connections=textwrap.indent("\n".join(textwrap.wrap(", ".join(pins), 92)), "    "),
    )


def _controls(ports: str) -> tuple[str, str]:
    """Return the names of the enable and of the clear, each empty if it is missing."""
    en, clear = (
        port if re.search(rf"input +wire +{port}\b", ports) else "" for port in ("en", "clear")
    )
    return en, clear
