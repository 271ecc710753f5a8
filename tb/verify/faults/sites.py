"""Registers and memories in a circuit's Verilog, with their names in Verilator's C++."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amaranth.hdl import Elaboratable, Fragment, Module
from amaranth.lib.wiring import Component

_HEADER = Path(__file__).parents[2] / "machine" / "harness" / "sites.h.in"
PUBLIC_PORTS = ("write_en", "write_addr", "read_en", "read_addr")
"""Ports of a memory whose values the simulation keeps, so that its accesses can be noted."""

_MODULE = re.compile(r"^module (\S+) \(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  (top_\w+) \\?(\S+) +\($", re.MULTILINE)
_ASSIGNED = re.compile(r"^ +(\\?[\w$.:]+) ?(?:\[[^=]*?\])? <= ", re.MULTILINE)
_DECLARED = re.compile(
    r"^  (?:output )?reg +(?:\[(\d+):0\] )?(\\?[\w$.:]+)(?: +\[(\d+):0\])?[;, =\n]", re.MULTILINE
)
_MEMBER = re.compile(r"(\w+)(?:,[\d,]+\))?;$", re.MULTILINE)
_PORT = re.compile(rf"^(  input  wire (?:\[\d+:0\] )?(?:{'|'.join(PUBLIC_PORTS)}))\b", re.MULTILINE)
_OUTPUT = re.compile(r"^(  output reg +(?:\[\d+:0\] )?[\w$]+)", re.MULTILINE)
_COPY = re.compile(r"^  \(\* keep \*\)\n  always @\(posedge \w+\)\n    (\w+) <= ", re.MULTILINE)
_PUBLIC = r"\1 /*verilator public_flat_rd*/"
_PUBLIC_COPY = r"\1 /*verilator public_flat_rw*/"
_COUNTS = re.compile(r"registers\.counters\.(?!turn|own|first|settling|place)")

_TOP = "top"  # the unit of registers outside of all others


@dataclass(frozen=True)
class Site:
    """A register or memory of a circuit, in which a fault can be injected.

    ``path`` consists of the names of the submodules that contain the site and of the site's name,
    separated by dots. The site has ``depth`` words of ``width`` bits; a register has a depth of 1.
    """

    path: str
    width: int
    depth: int
    ports: bool
    """True if the site's words are read and written through registers
    (``celosia.hdl.memory.ram``)."""

    @property
    def bits(self) -> int:
        """Number of the site's bits; a fault can be injected in each of them."""
        return self.width * self.depth

    @property
    def unit(self) -> str:
        """Name of the unit, a submodule of the top module, that contains the site.

        A register outside of all submodules has the unit ``top``. If the site is a memory, the
        suffix :data:`MEMORIES` is added to the name.
        """
        top = self.path.split(".")
        name = top[0] if len(top) > 1 else _TOP
        return f"{name}{MEMORIES}" if self.depth > 1 else name

    @property
    def counts(self) -> bool:
        """True if the site is part of a performance counter; counters do not affect results."""
        return bool(_COUNTS.match(self.path))

    @property
    def member(self) -> str:
        """Name of the member that stores the site's value in Verilator's C++ class."""
        return _member(self.path)


def _member(path: str) -> str:
    escaped = (part.replace("__", "___05F") for part in path.split("."))
    return "__DOT__".join(("top", *escaped))


def noting(verilog: str) -> str:
    """Return a circuit's Verilog with attributes that stop Verilator from removing fault sites.

    Fault sites are registers and memories in which a bit can be flipped. The attributes keep ports
    of memories, registers that drive outputs, and copies of registers.
    """

    def keep(module: re.Match[str]) -> str:
        text = _OUTPUT.sub(_PUBLIC, module[0])
        for name in _COPY.findall(text):
            text = re.sub(rf"^(  reg (?:\[\d+:0\] )?{name})\b", _PUBLIC_COPY, text, flags=re.M)
        holds_words = re.search(r"^  reg .*\bmemory \[", text, re.MULTILINE)
        return _PORT.sub(_PUBLIC, text) if holds_words else text

    return _MODULE.sub(keep, verilog)


MEMORIES = " memories"
"""End of the name of a unit's memories."""


class _Shallow:
    """A platform (:class:`celosia.hdl.component.Placer`) that elaborates one component alone."""

    def __init__(self, component: Component):
        self._component = component

    def place(self, component: Component, elaborate: Callable[..., Elaboratable]) -> Elaboratable:
        return elaborate(component, self) if component is self._component else Module()


def unit_names(component: Component) -> list[str]:
    """Return the sorted names of a component's units: its submodules, and ``top`` for itself.

    The list has no separate names for the units' memories, unlike :attr:`Site.unit`. The function
    takes little time, since it elaborates only the component itself, not its submodules.
    """
    parts = Fragment.get(component, _Shallow(component)).subfragments
    return sorted([_TOP, *(name for _, name, _ in parts if name)])


def find_sites(verilog: str) -> list[Site]:
    """Return all registers and writable memories in a circuit's Verilog, sorted by path."""
    modules = {module[1]: module[0] for module in _MODULE.finditer(verilog)}

    def walk(module: str, path: str) -> Iterator[Site]:
        text = modules[module]
        assigned = set(_ASSIGNED.findall(text)) - {"_start"}
        for width, name, depth in _DECLARED.findall(text):
            if name in assigned:
                plain = name.removeprefix("\\")
                site = (path + plain, int(width or 0) + 1, int(depth or 0) + 1)
                yield Site(*site, ports=name == "memory")
        for child, name in _INSTANCE.findall(text):
            yield from walk(child, f"{path}{name}.")

    return sorted(walk("top", ""), key=lambda site: site.path)


def sites_header(sites: list[Site], header: str) -> tuple[str, list[Site]]:
    """Return a C++ header with the offsets of fault sites, and the sites that Verilator has kept.

    ``sites`` are the circuit's registers and memories in which a bit can be flipped. ``header`` is
    the text of Verilator's header, with the C++ class whose members the offsets locate.
    """
    members = set(_MEMBER.findall(header))
    kept = [site for site in sites if site.member in members]
    rows, ports, compared = [], [], []
    for index, site in enumerate(kept):
        name = f"Vtop___024root::{site.member}"
        element = f"({name})" if site.depth == 1 else f"({name}[0])"
        offset = f"offsetof(Vtop___024root, {site.member})"
        rows.append(f"{{{offset}, {site.depth}, sizeof{element}}},")
        if not site.ports:
            compared += [] if site.counts else [index]
            continue
        names = {port: _member(site.path.removesuffix("memory") + port) for port in PUBLIC_PORTS}
        places = [f"offsetof(Vtop___024root, {names[port]})" for port in PUBLIC_PORTS]
        width = re.search(rf"/\*(\d+):0\*/ {names['write_en']};", header)
        enables = int(width[1]) + 1 if width else 1
        sizes = [f"sizeof(Vtop___024root::{names[port]})" for port in ("write_en", "read_addr")]
        ports.append(
            f"{{{index}, {', '.join(places)}, {', '.join(sizes)}, {(1 << enables) - 1}u, "
            f"{int(site.counts)}}},"
        )
    text = _HEADER.read_text(encoding="utf-8").format(
        sites="\n    ".join(rows),
        ports="\n    ".join(ports),
        port_count=len(ports),
        compared=", ".join(map(str, compared)),
    )
    return text, kept
