"""The top module of a board in Verilog, and the pin constraints of the board."""

from amaranth.hdl import Shape

from celosia.fpga.board_pins import Pin
from celosia.fpga.boards import LEDS, LINKS, Board
from celosia.fpga.ddr3.around import core_instance, core_wires
from celosia.fpga.ddr3.core import Ddr3
from celosia.fpga.pll import Pll
from celosia.fpga.templates import template
from celosia.hdl.memory.ddr3.pins import CorePorts
from celosia.hdl.memory.psram.pins import PsramPins
from celosia.hdl.memory.sdram.pins import SdramPins

CORE = "celosia_board"
"""Name of the Verilog module of a board's machine."""
TOP = "board"
"""Name of the top module of a board."""

_TOP = template("top")

_SDRAM = template("sdram")
"""ECP5's pins of an SDRAM."""

_PSRAM = template("psram")

_PSRAM_OUTPUTS = ("ck", "ck_n", "cs_n", "reset_n")

_FLASH = template("flash")

_CLOCKS = {
    "ecp5": "  USRMCLK flash_sck (.USRMCLKI(flash_clock), .USRMCLKTS(1'b0));\n",
    "ice40": "  assign flash_sck = flash_clock;\n",
    "gowin": "  assign flash_sck = flash_clock;\n",
}
"""The flash's clock by family: an ECP5 has a special cell for it (Lattice FPGA-TN-02039)."""

_RESET = template("reset")

_GATE = template("gate")

_LATE_RESET = template("late_reset")
"""The machine's reset: a register, as LiteDRAM's is a net of its core."""

_STARTS = {"ecp5": ("gate", _GATE), "ice40": ("reset", _RESET), "gowin": ("reset", _RESET)}


def top_verilog(board: Board, pll: Pll) -> str:
    """Return the Verilog of a board's top module: PLL, power-on reset, pins and the machine."""
    inputs, link_names = LINKS[board.link]
    names = (*link_names, *LEDS)
    outputs = [name for name in names if name in board.pins]
    assigned = [
        f"  assign {name} = {'~' if board.pins[name].inverted else ''}core_{name};\n"
        for name in outputs
    ]
    ports = [f"input {name}" for name in inputs] + [f"output {name}" for name in outputs]
    sdram, ends = "", []
    begins, start = _STARTS[board.device.family.name]
    generator = pll.verilog
    if board.ddr3 is not None:
        begins, generator, start = "DDR3", "", core_wires(board.ddr3.chip, "ddr3_")
        start += _core(board, board.ddr3)
        ports += _ddr3_ports(board)
        sdram = _ddr3_levels(board, board.ddr3)
        ends = [f", .ddr3_{name}(ddr3_{name})" for name in CorePorts(board.ddr3.chip).members]
    if board.sdram is not None:
        bits = board.sdram.data_width
        sdram = _SDRAM.format(width=bits - 1, bits=bits)
        for name, member in SdramPins(board.sdram).members.items():
            line = f"sdram_{name}"
            ends.append(f", .{line}({'sdram_dq' if name == 'dq_i' else line})")
            if not name.startswith("dq_"):
                ports.append(f"output [{Shape.cast(member.shape).width - 1}:0] {line}")
        ports += ["output sdram_clk", f"inout [{bits - 1}:0] sdram_dq"]
    if board.psram is not None:
        dies = board.psram.dies
        sdram = _PSRAM.format(dies=dies, last=dies - 1, bits=8 * dies, width=8 * dies - 1)
        read = {f"{name}_i": f"IO_psram_{name}" for name in ("dq", "rwds")}
        ends = [
            f", .psram_{name}({read.get(name, f'psram_{name}')})"
            for name in PsramPins(board.psram).members
        ]
        ports += [f"output [{dies - 1}:0] O_psram_{name}" for name in _PSRAM_OUTPUTS]
        ports += [f"inout [{8 * dies - 1}:0] IO_psram_dq", f"inout [{dies - 1}:0] IO_psram_rwds"]
    flash, lines = _flash(board)
    ports += lines
    return _TOP.format(
        title=board.title,
        begins=begins,
        core=CORE,
        top=TOP,
        ports=", ".join(["input clk", *ports]),
        pll=generator,
        start=start,
        wires=", ".join(f"core_{name}" for name in names),
        outputs="".join(assigned),
        sdram=sdram,
        flash=flash,
        connections="".join(
            [f", .{name}({name})" for name in inputs]
            + [f", .{name}(core_{name})" for name in names]
            + ends
            + (_FLASH_CONNECTIONS[board.flash.lanes] if board.flash is not None else [])
        ),
    )


_BOTH_WAYS = ("dq", "dqs_p")  # lines of a DDR3


def _ddr3_lines(board: Board) -> dict[str, int]:
    """Return the lines of a board's DDR3 and of pins beside it, with their numbers of pins."""
    widths: dict[str, int] = {}
    for name in board.pins:
        if name.startswith("ddr3_"):
            line = name.removeprefix("ddr3_").partition("[")[0]
            widths[line] = widths.get(line, 0) + 1
    return widths


def _ddr3_ports(board: Board) -> list[str]:
    return [
        f"{'inout' if line in _BOTH_WAYS else 'output'} [{width - 1}:0] ddr3_{line}"
        for line, width in _ddr3_lines(board).items()
    ]


def _core(board: Board, ddr3: Ddr3) -> str:
    """Return LiteDRAM's core, which makes the machine's clock from the board's."""
    others = {"clk": "clk", "rst": "1'b0", "pll_locked": "locked"}
    others |= {"user_clk": "fast", "user_rst": "begun"}
    for line in _ddr3_lines(board):
        if line not in ("high", "low"):
            top = f"[{ddr3.chip.row_bits - 1}:0]" if line == "a" else ""
            others[f"ddram_{line}"] = f"ddr3_{line}{top}"
    return _LATE_RESET + core_instance(ddr3.chip, "ddr3_", others)


def _ddr3_levels(board: Board, ddr3: Ddr3) -> str:
    """Return Verilog that holds pins at a level: those beside the chip, and unused addresses."""
    lines = _ddr3_lines(board)
    text = "".join(
        f"  assign ddr3_{line} = {{{lines[line]}{{1'b{level}}}}};\n"
        for line, level in (("high", 1), ("low", 0))
        if line in lines
    )
    if spare := lines["a"] - ddr3.chip.row_bits:
        place = f"[{lines['a'] - 1}:{ddr3.chip.row_bits}]"
        text += f"  assign ddr3_a{place} = {{{spare}{{1'b0}}}};\n"
    return text


_FLASH_WIRES = (
    ("sck", "flash_clock"),
    ("cs_n", "flash_cs_n"),
    ("dq_o", "flash_dq_o"),
    ("dq_oe", "flash_dq_oe"),
)
_FLASH_CONNECTIONS = {
    lanes: [f", .flash_{name}({wire})" for name, wire in (*_FLASH_WIRES, ("dq_i", data))]
    for lanes, data in ((1, "{2'b11, flash_cipo, 1'b1}"), (4, "flash_dq"))
}


def _flash(board: Board) -> tuple[str, list[str]]:
    """Return the wires between the machine and its flash, and the ports for them."""
    if board.flash is None:
        return "", []
    names = ("cs_n", "sck", "copi", "wp_n", "hold_n")
    outputs = [name for name in names if f"flash_{name}" in board.pins]
    ports = [f"output flash_{name}" for name in outputs]
    text = _FLASH + _CLOCKS[board.device.family.name]
    if board.flash.lanes == 1:
        text += "  assign flash_copi = flash_dq_o[0];\n"
        fixed = [name for name in ("wp_n", "hold_n") if name in outputs]
        text += "".join(f"  assign flash_{name} = 1'b1;\n" for name in fixed)
        return text, [*ports, "input flash_cipo"]
    each = "  assign flash_dq[{0}] = flash_dq_oe[{0}] ? flash_dq_o[{0}] : 1'bz;\n"
    return text + "".join(map(each.format, range(4))), [*ports, "inout [3:0] flash_dq"]


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
    """Return the constraints file of a board's pins: (text, file name extension)."""
    ending, write = _WRITERS[board.device.family.name]
    text = "".join(
        write(name, pin, board.clock_mhz if name == "clk" else None)
        for name, pin in board.pins.items()
    )
    return text, ending


def unit_constraints(board: Board) -> tuple[str, str] | None:
    """Return the constraints file for the harness of a single unit on a board.

    The file assigns the board's pins to the ports of :class:`celosia.fpga.harness.Harness`. The
    result is (text, file name extension), or None for a family whose tools choose the pins.
    """
    ending, write = _WRITERS[board.device.family.name]
    if board.device.family.name != "gowin":
        return None
    inputs, outputs = LINKS[board.link]
    places = {"clk": "clk", "rst": LEDS[0], "i": inputs[0], "o": outputs[0]}
    return "".join(write(name, board.pins[pin], None) for name, pin in places.items()), ending
