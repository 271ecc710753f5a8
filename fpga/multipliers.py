"""The multipliers of device families in the place of ``hdl.multiplier.Multiplier``."""

import re
import textwrap

_MODULE = re.compile(
    r"^module (Multiplier(?:_\d+)?) \((.*?)^\);.*?^endmodule\n", re.MULTILINE | re.DOTALL
)
_OPERAND = re.compile(r"input +wire +(?:\[(\d+):0\] )?a\b")

_ECP5_WIDTH = 18

_ECP5 = """\
// The multiplier of an ECP5 with its own registers, in the place of the behavioural one.
module {name} ({ports});
  wire [17:0] left = $signed(a);
  wire [17:0] right = $signed(b);
  wire [35:0] product;
  assign p = product;
  MULT18X18D #(
    .REG_INPUTA_CLK("CLK0"), .REG_INPUTA_CE("CE0"), .REG_INPUTA_RST("RST1"),
    .REG_INPUTB_CLK("CLK0"), .REG_INPUTB_CE("CE0"), .REG_INPUTB_RST("RST1"),
    .REG_OUTPUT_CLK("CLK0"), .REG_OUTPUT_CE("CE1"), .REG_OUTPUT_RST("RST0"),
    .RESETMODE("SYNC"), .GSR("DISABLED")
  ) multiplier (
    .CLK0(clk), .CE0({en}), .CE1(1'b1), .RST0({clear}), .RST1(1'b0),
    .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
{connections}
  );
endmodule
"""


def place_multipliers(verilog: str, family: str) -> str:
    """Return a design's Verilog with the family's multipliers in it, where it has such.

    For ``ecp5`` a multiplier is one MULT18X18D: ``en`` is the clock enable of its operands'
    registers and ``clear`` the synchronous reset of its product's, as Lattice's sysDSP usage guide
    for ECP5 (FPGA-TN-02205) has them. Operands wider than 18 bits keep the behavioural module.
    """
    return _MODULE.sub(_ecp5, verilog) if family == "ecp5" else verilog


def _ecp5(module: re.Match[str]) -> str:
    name, ports = module[1], module[2]
    operand = _OPERAND.search(ports)
    assert operand is not None, name
    if int(operand[1] or 0) >= _ECP5_WIDTH:
        return module[0]
    pins = [
        f".{port}{bit}({signal}[{bit}])"
        for port, signal, count in (("A", "left", 18), ("B", "right", 18), ("P", "product", 36))
        for bit in range(count)
    ]
    gated = re.search(r"input +wire +clear\b", ports) is not None
    return _ECP5.format(
        name=name,
        ports=re.sub(r"\breg\b", "wire", ports),
        en="en" if gated else "1'b1",
        clear="clear" if gated else "1'b0",
        connections=textwrap.indent("\n".join(textwrap.wrap(", ".join(pins), 92)), "    "),
    )
