"""Replaces the modules ``MultiplierPair`` and ``HalfProducts`` by SB_MAC16 cells of an iCE40.

``MultiplierPair`` has two 8-bit multipliers. ``HalfProducts`` multiplies the 16-bit halves of two
32-bit words, which gives four products.
"""

import re

_MODULE = re.compile(
    r"^module ((?:\w+_)?(MultiplierPair|HalfProducts)(?:_\d+)?) \((.*?)^\);.*?^endmodule\n",
    re.MULTILINE | re.DOTALL,
)

_PAIR = """\
// The multiplier of an iCE40 UltraPlus with its own registers: two products of 8 bits.
module {name} ({ports});
  SB_MAC16 #(
    .A_REG(1'b1), .B_REG(1'b1), .TOP_8x8_MULT_REG(1'b1), .BOT_8x8_MULT_REG(1'b1),
    .TOPOUTPUT_SELECT(2'b10), .BOTOUTPUT_SELECT(2'b10),
    .MODE_8x8(1'b1), .A_SIGNED(1'b1), .B_SIGNED(1'b1)
  ) multiplier (
    .A({{a_1, a_0}}), .B({{b_1, b_0}}), .AHOLD(~a_en), .BHOLD(~b_en), .O({{p_1, p_0}}),
{rest}
  );
endmodule
"""

_HALF = """\
  SB_MAC16 #(
    .A_REG(1'b1), .B_REG(1'b1), .TOPOUTPUT_SELECT(2'b11), .BOTOUTPUT_SELECT(2'b11),
    .MODE_8x8(1'b0), .A_SIGNED(1'b{a_signed}), .B_SIGNED(1'b{b_signed})
  ) multiplier_{product} (
    .A(a[{a}]), .B(b[{b}]), .AHOLD(~a_en), .BHOLD(~b_en), .O({product}),
{rest}
  );
"""

_REST = """\
    .CLK(clk), .CE(1'b1), .C(16'b0), .D(16'b0), .CHOLD(1'b0), .DHOLD(1'b0),
    .IRSTTOP(1'b0), .IRSTBOT(1'b0), .ORSTTOP(1'b0), .ORSTBOT(1'b0),
    .OLOADTOP(1'b0), .OLOADBOT(1'b0), .ADDSUBTOP(1'b0), .ADDSUBBOT(1'b0),
    .OHOLDTOP(1'b0), .OHOLDBOT(1'b0), .CI(1'b0), .ACCUMCI(1'b0), .SIGNEXTIN(1'b0),
    .CO(), .ACCUMCO(), .SIGNEXTOUT()"""

_HALVES = (("high", 1, 1), ("left", 1, 0), ("right", 0, 1), ("low", 0, 0))
"""Products of halves: (name, a's half is the upper one, b's half is); upper halves are signed."""


def place_pairs(verilog: str, family: str) -> str:
    """Return a design's Verilog, in which SB_MAC16 cells of an iCE40 replace multiplier modules.

    A module ``MultiplierPair`` becomes one cell with two 8-bit products. A module ``HalfProducts``,
    with four products of 16-bit operands, becomes four cells. If ``family`` is not ``ice40``, the
    Verilog is returned unchanged.
    """
    return _MODULE.sub(_ice40, verilog) if family == "ice40" else verilog


def _ice40(module: re.Match[str]) -> str:
    name, ports = module[1], re.sub(r"\breg\b", "wire", module[3])
    if module[2] == "MultiplierPair":
        return _PAIR.format(name=name, ports=ports, rest=_REST)
    halves = [
        _HALF.format(
            product=product,
            a=_half(upper_a),
            b=_half(upper_b),
            a_signed=upper_a,
            b_signed=upper_b,
            rest=_REST,
        )
        for product, upper_a, upper_b in _HALVES
    ]
    return f"// Multipliers of an iCE40.\nmodule {name} ({ports});\n{''.join(halves)}endmodule\n"


def _half(upper: int) -> str:
    return "31:16" if upper else "15:0"
