"""The uppermost module of a board and its constraints."""

from amaranth.hdl import Shape

from fpga.boards import LEDS, LINKS, Board, Pin
from fpga.pll import Pll
from hdl.memory.sdram.pins import SdramPins

CORE = "celosia_board"
"""Name of the module of the board's machine."""
TOP = "board"
"""Name of the uppermost module."""

_TOP = """\
// {title}: clock generator, {begins} and pins around {core}.
module {top} ({ports});
  wire fast, locked, loop, rst;
{pll}\
{start}\
  wire {wires};
{outputs}\
{sdram}\
  {core} core (.clk(fast), .rst(rst){connections});
endmodule
"""

_SDRAM = """\
  wire [{width}:0] sdram_dq_o;
  wire sdram_dq_oe;
  assign sdram_dq = sdram_dq_oe ? sdram_dq_o : {{{bits}{{1'bz}}}};
  // The chip's clock rises where the machine's falls: commands and data are steady there.
  ODDRX1F sdram_clock (.SCLK(fast), .RST(1'b0), .D0(1'b0), .D1(1'b1), .Q(sdram_clk));
"""
"""ECP5's pins of an SDRAM."""

_RESET = """\
  reg [7:0] waited = 0;
  reg held = 1;
  always @(posedge fast) begin
    waited <= locked ? waited + !(&waited) : 0;
    held <= !(&waited);
  end
  assign rst = held;
"""

_GATE = """\
  // Nothing moves before the clock is steady. Registers begin as they were configured: a reset has
  // no wires of its own here, and would take as many as there are registers.
  reg [7:0] waited = 0;
  reg open = 0;
  always @(posedge clk) begin
    waited <= locked ? waited + !(&waited) : 0;
    open <= &waited;
  end
  DCCA gate (.CLKI(steady), .CE(open), .CLKO(fast));
  assign rst = 1'b0;
"""

_STARTS = {"ecp5": ("gate", _GATE), "ice40": ("reset", _RESET), "gowin": ("reset", _RESET)}


def top_verilog(board: Board, pll: Pll) -> str:
    """Return the uppermost module: the clock generator, and what the machine begins by."""
    inputs, given = LINKS[board.link]
    names = (*given, *LEDS)
    outputs = [name for name in names if name in board.pins]
    assigned = [
        f"  assign {name} = {'~' if board.pins[name].inverted else ''}core_{name};\n"
        for name in outputs
    ]
    ports = [f"input {name}" for name in inputs] + [f"output {name}" for name in outputs]
    sdram, led = "", []
    if board.sdram is not None:
        bits = board.sdram.data_width
        sdram = _SDRAM.format(width=bits - 1, bits=bits)
        for name, member in SdramPins(board.sdram).members.items():
            line = f"sdram_{name}"
            led.append(f", .{line}({'sdram_dq' if name == 'dq_i' else line})")
            if not name.startswith("dq_"):
                ports.append(f"output [{Shape.cast(member.shape).width - 1}:0] {line}")
        ports += ["output sdram_clk", f"inout [{bits - 1}:0] sdram_dq"]
    begins, start = _STARTS[board.device.family.name]
    return _TOP.format(
        title=board.title,
        begins=begins,
        core=CORE,
        top=TOP,
        ports=", ".join(["input clk", *ports]),
        pll=pll.verilog,
        start=start,
        wires=", ".join(f"core_{name}" for name in names),
        outputs="".join(assigned),
        sdram=sdram,
        connections="".join(
            [f", .{name}({name})" for name in inputs]
            + [f", .{name}(core_{name})" for name in names]
            + led
        ),
    )


def _lpf(name: str, pin: Pin, clock_mhz: float | None) -> str:
    attributes = " ".join(f"{key}={value}" for key, value in pin.attributes.items())
    lines = f'LOCATE COMP "{name}" SITE "{pin.name}";\nIOBUF PORT "{name}" {attributes};\n'
    return lines + (f'FREQUENCY PORT "{name}" {clock_mhz:g} MHZ;\n' if clock_mhz else "")


def _pcf(name: str, pin: Pin, clock_mhz: float | None) -> str:
    pull = "-pullup yes " if pin.attributes.get("PULLUP") == "1" else ""
    lines = f"set_io {pull}{name} {pin.name}\n"
    return lines + (f"set_frequency {name} {clock_mhz:g}\n" if clock_mhz else "")


def _cst(name: str, pin: Pin, _clock_mhz: float | None) -> str:
    attributes = " ".join(f"{key}={value}" for key, value in pin.attributes.items())
    return f'IO_LOC "{name}" {pin.name};\nIO_PORT "{name}" {attributes};\n'


_WRITERS = {"ecp5": ("lpf", _lpf), "ice40": ("pcf", _pcf), "gowin": ("cst", _cst)}


def constraints(board: Board) -> tuple[str, str]:
    """Return the constraints of a board's pins, and the ending that their file has."""
    ending, write = _WRITERS[board.device.family.name]
    text = "".join(
        write(name, pin, board.clock_mhz if name == "clk" else None)
        for name, pin in board.pins.items()
    )
    return text, ending


def unit_constraints(board: Board) -> tuple[str, str] | None:
    """Return the same for the pins of a unit alone (:mod:`fpga.harness`), on the board's own.

    Nothing is returned where the family's tools find places for pins by themselves.
    """
    ending, write = _WRITERS[board.device.family.name]
    if board.device.family.name != "gowin":
        return None
    inputs, outputs = LINKS[board.link]
    places = {"clk": "clk", "rst": LEDS[0], "i": inputs[0], "o": outputs[0]}
    return "".join(write(name, board.pins[pin], None) for name, pin in places.items()), ending
