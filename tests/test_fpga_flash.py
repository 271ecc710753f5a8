"""Boards that begin with an image in their flash: pins, wires, loaders, size."""

import re
from pathlib import Path

import pytest

from celosia.arch.errors import InputError
from celosia.arch.flash import CHIPS
from celosia.fpga.boards import BOARDS, FLASHES, IMAGE_ADDR, Board, get_board, with_flash
from celosia.fpga.devices import DEVICES
from celosia.fpga.flash import check_image, flash_command, image_command
from celosia.fpga.pins import CORE, TOP, constraints, top_verilog
from celosia.fpga.pll import find_pll
from celosia.fpga.synthesis import count, synthesize
from celosia.fpga.tools import find_tool, run_tool
from celosia.fpga.top import BoardTop
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.flash.power_on import PowerOn
from celosia.hdl.flash.reader import FlashReader

CORE_PORTS = """
module celosia_board (input clk, rst, rx, output tx, heartbeat, busy, error, flash_sck,
  flash_cs_n, output [3:0] flash_dq_o, flash_dq_oe, input [3:0] flash_dq_i);
  assign {flash_sck, flash_cs_n, flash_dq_o, flash_dq_oe} = {10{rst}} ^ {6'b0, flash_dq_i};
  assign {tx, heartbeat, busy, error} = {4{rx}};
endmodule
"""


def wires(name: str, kind: str) -> str:
    """Return the uppermost module of a board with a flash."""
    return top_of(with_flash(get_board(name), kind))


def top_of(board: Board) -> str:
    """Return a board's uppermost module."""
    pll = find_pll(board.device.family.name, board.device.name, board.clock_mhz, board.target_mhz)
    return top_verilog(board, pll)


@pytest.mark.parametrize("kind", FLASHES)
@pytest.mark.parametrize("name", BOARDS)
def test_every_board_has_its_flash(name: str, kind: str) -> None:
    plain = get_board(name)
    if kind == "qspi" and name in ("tang_nano_9k", "tang_primer_20k", "colorlight_5a75b"):
        message = f"^Board {name} has its flash on one lane; take --flash spi$"
        with pytest.raises(InputError, match=message):
            with_flash(plain, kind)
        return
    board = with_flash(plain, kind)
    added = {line: pin.name for line, pin in board.pins.items() if line not in plain.pins}
    ecp5 = board.device.family.name == "ecp5"
    assert ("flash_sck" in added) != ecp5
    data = {"flash_copi", "flash_cipo"} if kind == "spi" else {f"flash_dq[{n}]" for n in range(4)}
    assert data | {"flash_cs_n"} <= set(added)
    assert len({pin.name for pin in board.pins.values()}) == len(board.pins)
    if board.package == "BG256":
        assert [added.get(line) for line in ("flash_copi", "flash_dq[0]")].count("T8") == 1
    text, _ = constraints(board)
    for line, pin in added.items():
        assert re.search(rf'\b{re.escape(line)}"? .*\b{pin}\b', text)
    assert ("USRMCLK flash_sck" in wires(name, kind)) == ecp5
    assert board.flash is not None
    assert board.flash.chip.reachable > IMAGE_ADDR
    assert "flash" not in top_of(plain)


@pytest.mark.parametrize(
    ("name", "kind", "pins"),
    [("ulx3s_25f", "qspi", 4), ("colorlight_5a75b", "spi", 0), ("icebreaker", "qspi", 4)],
)
def test_the_wires_are_what_the_tools_take(name: str, kind: str, pins: int, tmp_path: Path) -> None:
    (tmp_path / "top.v").write_text(wires(name, kind) + CORE_PORTS, encoding="utf-8")
    family = get_board(name).device.family
    script = f"read_verilog top.v; {family.synthesis} -top {TOP}; check -assert; stat -json"
    (tmp_path / "run.ys").write_text(f"{script.replace('stat', 'tee -o stat.json stat')}\n")
    run_tool(find_tool("yosys"), ["-q", "run.ys"], folder=tmp_path, log="log", work="Yosys")
    cells = (tmp_path / "stat.json").read_text(encoding="utf-8")
    buffers = re.search(r'"\$_TBUF_": (\d+)', cells)  # nextpnr makes pins of them
    assert (0 if buffers is None else int(buffers[1])) == pins
    assert ('"USRMCLK": 1' in cells) == (family.name == "ecp5")


def test_reader_and_power_on_are_small(tmp_path: Path) -> None:
    device, luts = DEVICES["iCE40UP5K"], []
    units = (FlashReader(CHIPS["W25Q128JV"], 18e6), PowerOn(0x12345678, IMAGE_ADDR, 16 << 20))
    for place, unit in enumerate(units):
        folder = tmp_path / str(place)
        folder.mkdir()
        cells = synthesize(to_verilog(unit, CORE), CORE, device, folder)
        needed = count(device.family, cells)
        assert needed["multipliers"] == needed["block_rams"] == 0
        luts.append(needed["luts"])
    assert luts[0] <= 150
    assert luts[1] <= 750


def test_without_an_image_there_is_nothing_of_it() -> None:
    board = get_board("icebreaker")
    top = BoardTop(board.config, clock=18_000_000, memory_bytes=board.memory_bytes)
    assert not any(name.startswith("flash") for name in top.signature.members)


def test_a_flash_needs_the_serial_line() -> None:
    message = r"^An image in the flash needs the serial line, not link spi$"
    with pytest.raises(InputError, match=message):
        with_flash(get_board("icebreaker", "spi"), "spi")
    board = with_flash(get_board("icebreaker"), "spi")
    with pytest.raises(InputError, match=message):
        BoardTop(board.config, clock=10**7, memory_bytes=1024, link="spi", flash=board.flash)
    with pytest.raises(InputError, match=r"^Unknown flash 'i2c'; known are spi, qspi$"):
        with_flash(get_board("icebreaker"), "i2c")


def test_an_image_must_have_room() -> None:
    board = with_flash(get_board("colorlight_5a75b"), "spi")
    check_image(board, 2 << 20)
    message = (
        "^An image of 2097153 bytes is too large for board colorlight_5a75b, whose flash has "
        "2097152 for it$"
    )
    with pytest.raises(InputError, match=message):
        check_image(board, (2 << 20) + 1)


COMMANDS = {
    "ulx3s_85f": ("openFPGALoader", "-b ulx3s -f", "-b ulx3s -f --file-type raw -o 0x200000"),
    "icebreaker": ("iceprog", "", "-o 0x200000"),
    "icesugar_pro": ("icesprog", "-w", "-w -o 0x200000"),
    "tang_nano_9k": (
        "openFPGALoader",
        "-b tangnano9k -f",
        "-b tangnano9k -f --file-type raw -o 0x200000 --external-flash",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_loaders_write_behind_the_bitstream(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, bits, image = COMMANDS[name]
    script = tmp_path / tool
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    file = Path("x.img")
    assert flash_command(get_board(name), file) == [tool, *bits.split(), "x.img"]
    assert image_command(get_board(name), file) == [tool, *image.split(), "x.img"]


def test_a_board_without_a_loader_for_addresses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    end = (
        "; with --image-only the image is written to a file, whose place in the flash is 0x200000$"
    )
    for name, reason in (
        ("orangecrab_25f", "has no loader for addresses of its flash"),
        ("ulx3s_85f", "needs openFPGALoader or fujprog on PATH"),
    ):
        with pytest.raises(InputError, match=f"^Board {name} {reason}{end}"):
            image_command(get_board(name), Path("x"))
