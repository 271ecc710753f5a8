"""External memories of boards: their pins, clocks and controllers."""

import json
import subprocess
import sys
from pathlib import Path

import apycula
import pytest
from apycula.chipdb import load_chipdb

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.arch.records import Memory
from celosia.fpga.boards import get_board, with_sdram
from celosia.fpga.build import Task
from celosia.fpga.pins import TOP, constraints, top_verilog
from celosia.fpga.placement import pack, place
from celosia.fpga.pll import Pll, find_pll
from celosia.fpga.synthesis import synthesize
from celosia.fpga.tools import find_tool, run_tool


@pytest.mark.parametrize(
    "name", ["ulx3s_85f", "ulx3s_45f", "ulx3s_25f", "icesugar_pro", "icepi_zero"]
)
def test_an_sdram_has_all_of_its_pins(name: str) -> None:
    board = with_sdram(get_board(name))
    chip = board.sdram
    assert chip is not None
    assert board.memory_bytes == chip.size == 1 << board.config.memory.addr_width
    buses = {"a": chip.row_bits, "ba": chip.bank_bits, "dq": chip.data_width, "dqm": 2}
    lines = {f"sdram_{line}" for line in ("clk", "cke", "cs_n", "ras_n", "cas_n", "we_n")}
    lines |= {f"sdram_{bus}[{bit}]" for bus, width in buses.items() for bit in range(width)}
    assert set(board.pins) == set(get_board(name).pins) | lines
    assert len({pin.name for pin in board.pins.values()}) == len(board.pins)
    text, _ = constraints(board)
    for line in lines:
        assert f'LOCATE COMP "{line}" SITE "{board.pins[line].name}";' in text
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    verilog = top_verilog(board, pll)
    assert "inout [15:0] sdram_dq" in verilog
    assert "output [12:0] sdram_a" in verilog


@pytest.mark.parametrize("name", ["orangecrab_25f", "orangecrab_85f", "ecpix5_85f"])
def test_a_ddr3_has_all_of_its_pins(name: str) -> None:
    plain, board = get_board(name), with_sdram(get_board(name))
    assert board.ddr3 is not None
    chip = board.ddr3.chip
    assert board.memory_bytes == min(chip.size, 1 << Memory.addr_width)
    assert board.peak_bytes == 8
    assert len({pin.name for pin in board.pins.values()}) == len(board.pins)
    crab = name.startswith("orangecrab")
    buses = {"a": 16 if crab else 15, "ba": 3, "dq": 16, "dm": 2, "dqs_p": 2}
    buses |= {"high": 6, "low": 2} if crab else {}
    lines = {"clk_p", "cke", "ras_n", "cas_n", "we_n", "odt"}
    lines |= {"cs_n", "reset_n"} if crab else set()
    lines |= {f"{bus}[{bit}]" for bus, width in buses.items() for bit in range(width)}
    assert set(board.pins) - set(plain.pins) == {f"ddr3_{line}" for line in lines}
    text, _ = constraints(board)
    for line in lines:
        assert f'LOCATE COMP "ddr3_{line}" SITE "{board.pins[f"ddr3_{line}"].name}";' in text
    verilog = top_verilog(board, Pll(board.target_mhz, 0.0, ""))
    assert "inout [15:0] ddr3_dq" in verilog
    assert "inout [1:0] ddr3_dqs_p" in verilog
    assert f".ddram_a(ddr3_a[{chip.row_bits - 1}:0])" in verilog
    assert ("assign ddr3_a[15:13] = {3{1'b0}};" in verilog) == crab
    assert ("assign ddr3_high = {6{1'b1}};" in verilog) == crab


@pytest.mark.slow
def test_a_machine_and_its_ddr3_are_one_netlist(tmp_path: Path) -> None:
    """Yosys finds every module and port of the whole, the PHY's cells among them."""
    board = with_sdram(get_board("orangecrab_25f"))
    memory = board.config.memory
    config = PRESETS["micro"].replace(mem_width=memory.width, mem_addr_width=memory.addr_width)
    verilog = Task(config=config, board=board).verilog()
    (tmp_path / "all.v").write_text(verilog, encoding="utf-8")
    script = "read_verilog -lib +/ecp5/cells_sim.v +/ecp5/cells_bb.v; read_verilog all.v; "
    script += "hierarchy -check -top board; tee -o found.json stat -json; "
    script += "proc litedram_core board; check -assert litedram_core board"
    run_tool(find_tool("yosys"), ["-p", script], folder=tmp_path, log="yosys.log", work="Yosys")
    design = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    cells = design["modules"]["\\litedram_core"]["num_cells_by_type"]
    kinds = {"DQSBUFM": 2, "IDDRX2DQA": 16, "ODDRX2DQA": 18, "TRELLIS_IO": 18, "EHXPLLL": 1}
    assert {kind: cells[kind] for kind in kinds} == kinds


STUB = """
module celosia_board (input clk, rst, rx, output tx, heartbeat, busy, error,
                      output reg psram_ck, psram_ck_n, psram_cs_n, psram_reset_n, psram_dq_oe,
                      output reg [15:0] psram_dq_o, input [15:0] psram_dq_i, output psram_rwds_oe,
                      output [1:0] psram_rwds_o, input [1:0] psram_rwds_i);
  reg [19:0] held = 0;
  reg [17:0] read = 0;
  always @(posedge clk) begin
    held <= {held, rx};
    {psram_cs_n, psram_reset_n, psram_dq_oe, psram_dq_o} <= rst ? 0 : held;
  end
  always @(negedge clk) begin
    read <= {psram_rwds_i, psram_dq_i};
    {psram_ck, psram_ck_n} <= held[19:18];
  end
  assign psram_rwds_oe = psram_dq_oe, psram_rwds_o = psram_dq_o[1:0], tx = ^read;
  assign {heartbeat, busy, error} = read[2:0];
endmodule
"""
"""Registers in the place of a machine with PSRAM."""


@pytest.mark.slow
def test_psram_is_at_the_pads_of_the_package(tmp_path: Path) -> None:
    """Places are those of the device's database, and the bitstream drives and reads them."""
    board = with_sdram(get_board("tang_nano_9k"))
    assert board.psram is not None
    assert board.peak_bytes == board.psram.dies == 2
    assert board.memory_bytes == board.psram.size == 1 << board.config.memory.addr_width == 1 << 23
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    synthesize(top_verilog(board, pll) + STUB, TOP, board.device, tmp_path)
    text, ending = constraints(board)
    assert 'IO_LOC "busy" 11;\nIO_PORT "busy" IO_TYPE=LVCMOS18;\n' in text
    (tmp_path / f"board.{ending}").write_text(text, encoding="utf-8")
    placements = place(
        board.device,
        board.package,
        board.speed,
        tmp_path,
        seeds=[1],
        mhz=pll.mhz,
        constraints=f"board.{ending}",
        progress=lambda *_: None,
    )
    bitstream = pack(board, placements[0])
    family = board.device.options[1].partition("=")[2]
    unpack = Path(sys.executable).with_name("gowin_unpack")
    arguments = ["-d", family, "-o", "found.v", bitstream.name]
    subprocess.run([unpack, *arguments], cwd=bitstream.parent, capture_output=True, check=True)
    netlist = (bitstream.parent / "found.v").read_text(encoding="utf-8")
    database = load_chipdb(Path(apycula.__file__).parent / f"{family}.msgpack.xz")
    pads = database.sip_cst["GW1NR-9C"]["QFN88P"]
    assert len(pads) == 26
    for name, row, col, place_, _ in pads:
        kind = "IOBUF" if name.startswith("IO_") else "OBUF"
        assert f"{kind} R{row + 1}C{col + 1}_{kind}_{place_} (" in netlist, name


def test_a_machine_with_sdram_has_a_clock_of_its_own() -> None:
    board, smaller = get_board("ulx3s_85f"), get_board("ulx3s_25f")
    assert (board.target_mhz, with_sdram(board).target_mhz) == (95.0, 80.0)
    assert with_sdram(smaller).target_mhz == smaller.target_mhz


def test_a_board_without_sdram_is_refused() -> None:
    message = (
        "^Board icebreaker has no SDRAM, DDR3 or PSRAM that is supported; ulx3s_85f, ulx3s_45f, "
        "ulx3s_25f, tang_nano_9k, orangecrab_25f, orangecrab_85f, ecpix5_85f, icepi_zero, "
        "icesugar_pro have$"
    )
    with pytest.raises(InputError, match=message):
        with_sdram(get_board("icebreaker"))
