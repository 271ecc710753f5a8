"""Boards, their constraints and clock generators, against the limits of datasheets."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from celosia.cli.board_options import resolve_board
from celosia.fpga.boards import BOARDS, LEDS, get_board
from celosia.fpga.devices import DEVICES, RESOURCES
from celosia.fpga.flash import LOADERS
from celosia.fpga.pins import CORE, constraints, top_verilog
from celosia.fpga.pll import RANGES, find_pll
from celosia.fpga.synthesis import NETLIST, count, synthesize
from celosia.fpga.top import BoardTop
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.toolchain import environment, missing_tools


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_complete(name: str) -> None:
    board = get_board(name)
    assert {"clk", "rx", "tx"} <= set(board.pins) <= {"clk", "rx", "tx", *LEDS}
    assert len({pin.name for pin in board.pins.values()}) == len(board.pins)
    assert all(loader.split()[0] in LOADERS and "{file}" in loader for loader in board.loaders)
    assert board.config.elements <= 2 * board.device.capacity["multipliers"]
    text, _ = constraints(board)
    for port, pin in board.pins.items():
        assert re.search(rf'\b{port}\b"? .*\b{pin.name}\b', text)
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    assert 0.93 * board.target_mhz <= pll.mhz <= board.target_mhz + 1e-6
    verilog = top_verilog(board, pll)
    assert re.findall(r"output (\w+)", verilog) == [n for n in ("tx", *LEDS) if n in board.pins]


@pytest.mark.parametrize("name", BOARDS)
def test_spi_takes_the_serial_lines_place(name: str) -> None:
    if name in ("tang_nano_9k", "colorlight_5a75b"):
        message = f"^Board {name} has no connector that can take SPI; leave out --link spi, or take"
        with pytest.raises(ValueError, match=message):
            get_board(name, "spi")
        return
    board = get_board(name, "spi")
    lines = {"clk", "sck", "cs_n", "copi", "cipo"}
    assert lines <= set(board.pins) <= lines | set(LEDS)
    serial = get_board(name).pins
    pins = [pin.name for pin in (*board.pins.values(), serial["rx"], serial["tx"])]
    # The LEDs, too, are where the serial line is not.
    assert len(set(pins)) == len(pins)
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    verilog = top_verilog(board, pll)
    assert re.findall(r"input (\w+)", verilog) == ["clk", "sck", "cs_n", "copi"]
    assert ".sck(sck), .cs_n(cs_n), .copi(copi), .cipo(core_cipo)" in verilog
    text, _ = constraints(board)
    assert all(re.search(rf'\b{line}\b"? .*\b{board.pins[line].name}\b', text) for line in lines)


@pytest.mark.long
def test_no_product_of_a_45f_is_made_of_tables(tmp_path: Path) -> None:
    """Each two of the array's 64 products share one of 32 multipliers; 36 are the engine's."""
    board, config = resolve_board("ulx3s_45f", None, (), "uart", None)
    machine = BoardTop(config, clock=70_000_000, memory_bytes=board.memory_bytes)
    cells = synthesize(kept_verilog(machine, CORE), CORE, board.device, tmp_path)
    assert count(board.device.family, cells)["multipliers"] == 68
    netlist = json.loads((tmp_path / NETLIST).read_text(encoding="utf-8"))
    placed = [
        name
        for name, cell in netlist["modules"][CORE]["cells"].items()
        if cell["type"] == "MULT18X18D"
    ]
    assert sum("accelerator.matrix.array." in name for name in placed) == 32


def test_an_unknown_link_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Unknown link 'i2c'; known are uart, spi$"):
        get_board("ulx3s_85f", "i2c")


STARTING = """
module bench;
  reg clk = 0, locked = 0;
  integer steady_for = 0;
  always #10 clk = ~clk;
  always @(posedge clk) steady_for <= locked ? steady_for + 1 : 0;
  board board (.clk(clk), .rx(1'b1));
  initial begin
    #2000 locked = 1;
    #1000 locked = 0;
    #2000 locked = 1;
    #8000 locked = 0;
    #2000 locked = 1;
    #8000 $finish;
  end
endmodule

module generator (output reg clk, output locked);
  assign locked = bench.locked;
  initial clk = 0;
  always #3 clk = ~clk;
endmodule

module DCCA (input CLKI, input CE, output CLKO);
  reg passes = 0;
  always @(CLKI or CE) if (!CLKI) passes = CE;
  assign CLKO = CLKI && passes;
endmodule

module celosia_board (input clk, rst, rx, output tx, heartbeat, busy, error);
  always @(posedge clk) if (!rst) $display("%0d", bench.steady_for);
endmodule
"""
"""A board whose generator is steady for too short a time, for long, and for long again."""


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
@pytest.mark.parametrize("name", ["ulx3s_25f", "icebreaker", "tang_nano_9k"])
def test_nothing_moves_before_the_clock_is_steady(name: str, tmp_path: Path) -> None:
    board = get_board(name)
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    ecp5 = board.device.family.name == "ecp5"
    wires = "wire steady;" if ecp5 else "assign loop = 1'b0;"
    out = "steady" if ecp5 else "fast"
    stub = f"{wires} generator pll (.clk({out}), .locked(locked));\n"
    text = top_verilog(board, replace(pll, verilog=stub))
    (tmp_path / "bench.v").write_text(text + STARTING, encoding="utf-8")
    for command in (
        ["iverilog", "-g2005", "-s", "bench", "-o", "bench.vvp", "bench.v"],
        ["vvp", "-n", "bench.vvp"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, check=True
        )
    moved = [int(line) for line in done.stdout.split()]
    # A few cycles pass until a generator that is not steady any more stops the machine.
    stops = [place for place, steady_for in enumerate(moved) if steady_for <= 2]
    assert 0 < len(stops) <= 20
    assert stops == list(range(stops[0], stops[0] + len(stops)))
    # 255 cycles pass first, of what comes in or, where a reset begins, of what comes out.
    least = 255 if ecp5 else 255 * 6 // 20
    assert all(steady_for >= least for steady_for in moved[: stops[0]] + moved[stops[-1] + 1 :])
    assert min(stops[0], len(moved) - stops[-1]) > 400
    assert ("rst = 1'b0" in text) == ecp5


def test_active_low_leds_are_inverted() -> None:
    board = get_board("icebreaker")
    pll = find_pll("ice40", "iCE40UP5K", 12, 16.5)
    assert "assign heartbeat = ~core_heartbeat;" in top_verilog(board, pll)
    assert "assign tx = core_tx;" in top_verilog(board, pll)


def test_constraints_of_each_family() -> None:
    text, ending = constraints(get_board("ulx3s_85f"))
    assert ending == "lpf"
    assert 'LOCATE COMP "clk" SITE "G2";\nIOBUF PORT "clk" IO_TYPE=LVCMOS33;\n' in text
    assert 'FREQUENCY PORT "clk" 25 MHZ;' in text
    text, ending = constraints(get_board("icebreaker"))
    assert (ending, text.splitlines()[:3]) == (
        "pcf",
        ["set_io clk 35", "set_frequency clk 12", "set_io -pullup yes rx 6"],
    )
    text, ending = constraints(get_board("tang_nano_9k"))
    assert ending == "cst"
    assert 'IO_LOC "tx" 17;\nIO_PORT "tx" PULL_MODE=UP IO_TYPE=LVCMOS33;\n' in text


def test_an_unknown_board_is_refused() -> None:
    message = f"^Unknown board 'ulx4s'; known are {', '.join(BOARDS)}$"
    with pytest.raises(ValueError, match=message):
        get_board("ulx4s")


def test_devices_count_everything() -> None:
    for device in DEVICES.values():
        assert set(device.capacity) == set(device.family.cells) == set(RESOURCES)
        assert set(device.family.placed) == set(RESOURCES)


def parameter(verilog: str, name: str) -> int:
    match = re.search(rf"\.{name}\((?:\d+'d)?(\d+)\)", verilog)
    assert match is not None
    return int(match[1])


@pytest.mark.parametrize("clock", [25.0, 48.0, 100.0])
@pytest.mark.parametrize("wanted", [62.3, 80.0, 91.7, 131.0])
def test_ecp5_settings(clock: float, wanted: float) -> None:
    pll = find_pll("ecp5", "LFE5U-85F", clock, wanted)
    detector = clock / parameter(pll.verilog, "CLKI_DIV")
    oscillator = (
        detector * parameter(pll.verilog, "CLKFB_DIV") * parameter(pll.verilog, "CLKOP_DIV")
    )
    assert 10 <= detector <= 400
    assert 400 <= oscillator <= 800
    assert pll.mhz == pytest.approx(oscillator / parameter(pll.verilog, "CLKOS_DIV"))
    assert 0.98 * wanted < pll.mhz <= wanted * (1 + 1e-9)
    assert parameter(pll.verilog, "CLKOS_CPHASE") == parameter(pll.verilog, "CLKOS_DIV") - 1


@pytest.mark.parametrize("wanted", [16.5, 17.9, 24.0, 40.0])
def test_ice40_settings(wanted: float) -> None:
    pll = find_pll("ice40", "iCE40UP5K", 12.0, wanted)
    detector = 12 / (parameter(pll.verilog, "DIVR") + 1)
    oscillator = detector * (parameter(pll.verilog, "DIVF") + 1)
    assert 533 <= oscillator <= 1066
    assert parameter(pll.verilog, "FILTER_RANGE") == 1
    assert pll.mhz == pytest.approx(oscillator / 2 ** parameter(pll.verilog, "DIVQ"))
    assert 0.98 * wanted < pll.mhz <= wanted


@pytest.mark.parametrize(
    ("device", "low", "high"), [("GW1NR-9C", 400, 1200), ("GW2A-18C", 500, 1250)]
)
@pytest.mark.parametrize("wanted", [27.0, 40.0, 55.5])
def test_gowin_settings(device: str, low: int, high: int, wanted: float) -> None:
    pll = find_pll("gowin", device, 27.0, wanted)
    out = 27 * (parameter(pll.verilog, "FBDIV_SEL") + 1) / (parameter(pll.verilog, "IDIV_SEL") + 1)
    assert low <= out * parameter(pll.verilog, "ODIV_SEL") <= high
    assert pll.mhz == pytest.approx(out)
    assert 0.96 * wanted < pll.mhz <= wanted


def test_ranges_are_those_of_other_tools() -> None:
    packer = pytest.importorskip("apycula.gowin_pack", reason="Apicula is not installed")
    for device in ("GW1NR-9C", "GW2A-18C"):
        known = packer._permitted_freqs[device.replace("NR", "N")]
        ranges = RANGES[device]
        assert known == (ranges.detector[1], *ranges.output[::-1], *ranges.oscillator[::-1])
    clocks = pytest.importorskip("litex.soc.cores.clock", reason="LiteX is not installed")
    ranges = RANGES["ecp5"]
    assert hertz(ranges.detector) == clocks.ECP5PLL.pfd_freq_range
    assert hertz(ranges.oscillator) == clocks.ECP5PLL.vco_freq_range
    assert hertz(ranges.output) == clocks.ECP5PLL.clko_freq_range
    ranges = RANGES["iCE40UP5K"]
    assert hertz(ranges.oscillator) == clocks.iCE40PLL.vco_freq_range
    assert hertz(ranges.output)[0] == clocks.iCE40PLL.clko_freq_range[0]


def hertz(mhz: tuple[float, float]) -> tuple[float, float]:
    return mhz[0] * 1e6, mhz[1] * 1e6


def test_the_loop_filter_of_ecp5_is_set() -> None:
    """Without these attributes nextpnr-ecp5 writes zeros, with which nothing may lock."""
    verilog = find_pll("ecp5", "LFE5U-85F", 25.0, 80.0).verilog
    attributes = "ICP_CURRENT LPF_RESISTOR MFG_ENABLE_FILTEROPAMP MFG_GMCREF_SEL"
    assert re.findall(r'(\w+)="\d+"', verilog) == attributes.split()


def test_a_frequency_out_of_reach_is_refused() -> None:
    message = "^The clock generator of iCE40UP5K cannot make 12 MHz or less of 12 MHz$"
    with pytest.raises(ValueError, match=message):
        find_pll("ice40", "iCE40UP5K", 12.0, 12.0)
