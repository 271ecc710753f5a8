"""A signed product made of an ECP5's tables and carry chains, as Verilog."""

ROWS = """\
// y * y_bit + x * x_bit, or y * y_bit - x * x_bit with MINUS: a table takes a bit of both rows.
module celosia_rows #(parameter WIDTH = 2, parameter MINUS = 0) (
  input [WIDTH-1:0] x, input x_bit, input [WIDTH-1:0] y, input y_bit, output [WIDTH-1:0] sum
);
  localparam PAIRS = (WIDTH + 1) / 2;
  // A carry is made of A and B alone, so what is subtracted stands there.
  localparam [15:0] TABLE = MINUS ? 16'h8777 : 16'h7888;
  wire [2*PAIRS-1:0] left = {x[WIDTH-1], x};
  wire [2*PAIRS-1:0] right = {y[WIDTH-1], y};
  wire [2*PAIRS-1:0] both;
  wire [PAIRS:0] carry;
  assign carry[0] = MINUS;
  assign sum = both;
  genvar i;
  generate for (i = 0; i < PAIRS; i = i + 1) begin : pair
    CCU2C #(.INIT0(TABLE), .INIT1(TABLE), .INJECT1_0("NO"), .INJECT1_1("NO")) tables (
      .CIN(carry[i]), .COUT(carry[i + 1]),
      .A0(left[2 * i]), .B0(x_bit), .C0(right[2 * i]), .D0(y_bit), .S0(both[2 * i]),
      .A1(left[2 * i + 1]), .B1(x_bit), .C1(right[2 * i + 1]), .D1(y_bit), .S1(both[2 * i + 1])
    );
  end endgenerate
endmodule
"""
"""The module that adds two rows of partial products."""


def table_product(name: str, a_width: int, b_width: int) -> str:
    """Return a module whose ``p`` is the product of the signed ``a`` and ``b``; it needs ``ROWS``.

    Partial products are added in pairs, each pair by one carry chain whose tables also multiply;
    the sums then in a tree: ``ceil(log2(b_width))`` chains behind each other.
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
