"""Verilog of signed multipliers made of LUTs and carry chains."""

import math

from celosia.fpga.templates import template

ROWS = template("rows")
"""Verilog of the module that adds two rows of partial products."""


def product_tables(a_width: int, b_width: int) -> int:
    """Return the approximate number of LUT4s of a multiplier of ``a_width`` by ``b_width`` bits."""
    a_width, b_width = max(a_width, b_width), min(a_width, b_width)
    return math.ceil(b_width / 2) * a_width


def row_product(name: str, a_width: int, b_width: int) -> str:
    """Return the Verilog of a module ``name`` that computes ``p = a * b`` (signed).

    The operands have ``a_width`` and ``b_width`` bits; the product has the sum of these widths. The
    Verilog instantiates no cells of a device, so it suits FPGAs of any family.
    """
    width = a_width + b_width
    rows = [
        f"{'-' if bit == b_width - 1 else '+'} (b[{bit}] ? wide << {bit} : {width}'d0)"
        for bit in range(b_width)
    ]
    total = "\n    ".join(rows)
    return (
        f"module {name} (\n  input [{a_width - 1}:0] a, input [{b_width - 1}:0] b, "
        f"output [{width - 1}:0] p\n);\n"
        f"  wire [{width - 1}:0] wide = {{{{{b_width}{{a[{a_width - 1}]}}}}, a}};\n"
        f"  assign p = {width}'d0\n    {total};\nendmodule\n"
    )


def table_product(name: str, a_width: int, b_width: int) -> str:
    """Return the Verilog of a module ``name`` that computes ``p = a * b`` (signed), for ECP5.

    The longest path has ``ceil(log2(b_width))`` carry chains. The design must also contain the
    Verilog module :data:`ROWS`, which the returned module instantiates.
    """
    width = a_width + 2
    sign = f"a[{a_width - 1}]"
    once, twice = f"{{{{2{{{sign}}}}}, a}}", f"{{{sign}, a, 1'b0}}"
    lines, terms = [], []
    for low in range(0, b_width, 2):
        last = low + 2 >= b_width  # the sign's row is subtracted
        alone = low + 1 == b_width
        x, x_bit = (once, low) if alone else (twice, low + 1)
        y_bit = "1'b0" if alone else f"b[{low}]"
        lines.append(
            f"  wire signed [{width - 1}:0] rows_{low};\n"
            f"  celosia_rows #(.WIDTH({width}), .MINUS({int(last)})) add_{low} (\n"
            f"    .x({x}), .x_bit(b[{x_bit}]), .y({once}), .y_bit({y_bit}), .sum(rows_{low})\n"
            f"  );\n"
        )
        terms.append((f"rows_{low}", low, width))
    while len(terms) > 1:
        pairs = [terms[at : at + 2] for at in range(0, len(terms), 2)]
        terms = [_add(lines, *pair) if len(pair) > 1 else pair[0] for pair in pairs]
    product = terms[0][0]
    return (
        f"module {name} (\n  input [{a_width - 1}:0] a, input [{b_width - 1}:0] b, "
        f"output [{a_width + b_width - 1}:0] p\n);\n{''.join(lines)}  assign p = {product};\n"
        f"endmodule\n"
    )


def _add(
    lines: list[str], low: tuple[str, int, int], high: tuple[str, int, int]
) -> tuple[str, int, int]:
    """Add a term and one of more weight; a term is a signal, its weight's exponent, its width."""
    left, below, left_width = low
    right, above, right_width = high
    passed = above - below
    width = right_width + 1
    name = f"sum_{below}_{above}"
    lines.append(
        f"  wire signed [{width - 1}:0] upper_{name} = $signed({left}[{left_width - 1}:{passed}])"
        f" + {right};\n"
        f"  wire signed [{width + passed - 1}:0] {name} = "
        f"{{upper_{name}, {left}[{passed - 1}:0]}};\n"
    )
    return name, below, width + passed
