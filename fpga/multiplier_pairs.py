"""The multipliers of device families in the place of ``MultiplierPair``."""

import re

_MODULE = re.compile(
    r"^module ((?:\w+_)?MultiplierPair(?:_\d+)?) \((.*?)^\);.*?^endmodule\n",
    re.MULTILINE | re.DOTALL,
)

_ICE40 = """\
// The multiplier of an iCE40 UltraPlus with its own registers: two products of 8 bits.
module {name} ({ports});
  SB_MAC16 #(
    .A_REG(1'b1), .B_REG(1'b1), .TOP_8x8_MULT_REG(1'b1), .BOT_8x8_MULT_REG(1'b1),
    .TOPOUTPUT_SELECT(2'b10), .BOTOUTPUT_SELECT(2'b10),
    .MODE_8x8(1'b1), .A_SIGNED(1'b1), .B_SIGNED(1'b1)
  ) multiplier (
    .CLK(clk), .CE(1'b1), .A({{a_1, a_0}}), .B({{b_1, b_0}}), .C(16'b0), .D(16'b0),
    .AHOLD(~a_en), .BHOLD(~b_en), .CHOLD(1'b0), .DHOLD(1'b0),
    .IRSTTOP(1'b0), .IRSTBOT(1'b0), .ORSTTOP(1'b0), .ORSTBOT(1'b0),
    .OLOADTOP(1'b0), .OLOADBOT(1'b0), .ADDSUBTOP(1'b0), .ADDSUBBOT(1'b0),
    .OHOLDTOP(1'b0), .OHOLDBOT(1'b0), .CI(1'b0), .ACCUMCI(1'b0), .SIGNEXTIN(1'b0),
    .O({{p_1, p_0}}), .CO(), .ACCUMCO(), .SIGNEXTOUT()
  );
endmodule
"""


def place_pairs(verilog: str, family: str) -> str:
    """Return a design's Verilog with the family's multipliers for pairs, where it has such.

    For ``ice40`` a pair is one SB_MAC16 in its mode of two products, as Lattice's DSP function
    usage guide for iCE40 devices (FPGA-TN-02007) has it, held by AHOLD and BHOLD.
    """
    return _MODULE.sub(_ice40, verilog) if family == "ice40" else verilog


def _ice40(module: re.Match[str]) -> str:
    return _ICE40.format(name=module[1], ports=re.sub(r"\breg\b", "wire", module[2]))
