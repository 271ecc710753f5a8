"""Places of an array's multipliers on a device."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from celosia.fpga.devices import DEVICES
from celosia.fpga.sites import seat

LARGE = DEVICES["LFE5U-85F"]


def netlist(folder: Path, rows: int, cols: int, *, enable: int | str = "1") -> Path:
    """Write a netlist of a systolic array and a vector engine; return its file."""
    names = [
        f"core.accelerator.matrix.array.column_{column}.element_{row}.multiplier.multiplier"
        for column in range(cols)
        for row in range(rows)
    ]
    cells = {name: multiplier(enable) for name in names}
    cells[names[0].replace("multiplier.multiplier", "sum")] = {"type": "CCU2C", "attributes": {}}
    return write(folder, cells)


def multiplier(enable: int | str = "1") -> dict[str, Any]:
    connections = {"CE0": [enable], "CE1": ["1"], "RST0": ["0"], "RST1": ["0"]}
    return {"type": "MULT18X18D", "attributes": {}, "connections": connections}


def block_ram(width: int) -> dict[str, Any]:
    parameters = {"DATA_WIDTH_B": f"{width:032b}"}
    return {"type": "DP16KD", "attributes": {}, "connections": {}, "parameters": parameters}


def write(folder: Path, cells: dict[str, Any]) -> Path:
    cells["core.accelerator.sparse.lane_0.multiplier"] = multiplier()
    path = folder / "netlist.json"
    path.write_text(json.dumps({"modules": {"top": {"cells": cells}}}), encoding="utf-8")
    return path


def places(path: Path) -> dict[str, str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    return {name: cell["attributes"]["BEL"] for name, cell in cells.items() if cell["attributes"]}


def test_elements_beside_each_other_stand_beside_each_other(tmp_path: Path) -> None:
    path = netlist(tmp_path, 12, 8)
    assert seat(path, "top", LARGE) == 96
    sites = places(path)
    assert len(set(sites.values())) == len(sites) == 96
    at = "core.accelerator.matrix.array.column_{}.element_{}.multiplier.multiplier"
    assert [sites[at.format(0, row)] for row in (0, 1, 2, 3, 4)] == [
        "X4/Y10/MULT18_0",
        "X5/Y10/MULT18_1",
        "X8/Y10/MULT18_4",
        "X9/Y10/MULT18_5",
        "X4/Y34/MULT18_0",
    ]
    assert sites[at.format(7, 11)] == "X74/Y58/MULT18_5"


def test_the_largest_array_that_has_places_uses_each_once(tmp_path: Path) -> None:
    path = netlist(tmp_path, 12, 13)
    assert seat(path, "top", LARGE) == LARGE.capacity["multipliers"] == 156
    assert len(set(places(path).values())) == 156


def test_other_arrays_are_left_as_they_are(tmp_path: Path) -> None:
    for rows, cols, device in ((13, 4, "LFE5U-85F"), (4, 14, "LFE5U-85F"), (4, 4, "LFE5U-45F")):
        path = netlist(tmp_path, rows, cols)
        before = path.read_bytes()
        assert seat(path, "top", DEVICES[device]) == 0
        assert path.read_bytes() == before


def test_multipliers_with_enables_of_their_own_are_left_to_nextpnr(tmp_path: Path) -> None:
    path = netlist(tmp_path, 4, 4, enable=17)
    assert seat(path, "top", LARGE) == 0
    assert not places(path)


def tree(rows: int, cols: int, slots: int = 9) -> dict[str, Any]:
    """Return the cells of a tree: a multiplier and a block RAM a row, one of 36 bits for four."""
    cells: dict[str, Any] = {}
    for column in range(cols):
        at = f"core.accelerator.matrix.array.column_{column}."
        for row in range(rows):
            cells[f"{at}multiplier_{row}.multiplier"] = multiplier()
            cells[f"{at}weights_45.low.memory.0.{row}"] = block_ram(slots)
        for number in range(-(-rows // 4)):
            cells[f"{at}weights_45.high.memory.0.{number}"] = block_ram(36)
    return cells


def place_of(site: str) -> tuple[int, int]:
    across, down, _ = site.split("/")
    return int(across[1:]), int(down[1:])


def test_a_trees_columns_lie_at_both_sides_of_the_device(tmp_path: Path) -> None:
    # All others' multipliers are as many as sites are left.
    others = {f"core.other.part_{n}.multiplier": multiplier() for n in range(28)}
    path = write(tmp_path, tree(16, 8) | others)
    assert seat(path, "top", LARGE) == 8 * (16 + 20)
    sites = places(path)
    assert len(set(sites.values())) == len(sites)
    ways = 0
    for column in range(8):
        here = {n: place_of(site) for n, site in sites.items() if f"column_{column}." in n}
        across = [x for x, _ in here.values()]
        assert max(across) - min(across) < 30, "a column's places are beside each other"
        assert (max(across) < 58) == (column < 4), "four columns at each side"
        for name, (x, y) in here.items():
            if number := re.search(r"low\.memory\.0\.(\d+)$", name):
                at = here[name.split("weights")[0] + f"multiplier_{number[1]}.multiplier"]
                ways += abs(x - at[0]) + abs(y - at[1])
    assert ways < 128 * 28, "weights stand beside their multipliers"
    # The block columns in the middle are left for all else.
    assert not {x for x, _ in map(place_of, sites.values())} & set(range(58, 67))


def test_columns_that_share_multipliers_stand_around_them(tmp_path: Path) -> None:
    cells = {n: c for n, c in tree(16, 8).items() if not re.search(r"column_[0246]\.multiplier", n)}
    path = write(tmp_path, cells)
    assert seat(path, "top", LARGE) == 4 * 16 + 8 * 20
    sites = {n: place_of(site) for n, site in places(path).items()}
    for pair in range(4):
        at = "core.accelerator.matrix.array.column_{}."
        ways = 0
        for column in (2 * pair, 2 * pair + 1):
            for row in range(16):
                x, y = sites[f"{at.format(column)}weights_45.low.memory.0.{row}"]
                a, b = sites[f"{at.format(2 * pair + 1)}multiplier_{row}.multiplier"]
                ways += abs(x - a) + abs(y - b)
        assert ways < 32 * 28, "those of either column are near the shared ones"


UNITS = {"epilogue.rotary": 6, "epilogue.lane": 8, "fronts.norm": 24, "intake": 8}
"""Multipliers of a vector engine's units."""


def engine(enables: int = 1) -> dict[str, Any]:
    """Return the multipliers of a vector engine with this number of enables."""
    at = "core.accelerator.vector."
    names = [f"{at}{unit}.part_{n}.multiplier" for unit, many in UNITS.items() for n in range(many)]
    return {name: multiplier(17 + n % enables) for n, name in enumerate(names)}


def test_a_units_multipliers_lie_beside_each_other_between_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path, tree(8, 8) | engine())
    assert seat(path, "top", LARGE) == 8 * (8 + 10) + 46
    sites = places(path)
    assert len(set(sites.values())) == len(sites)
    at = {n.removeprefix("core.accelerator.vector."): place_of(s) for n, s in sites.items()}
    for unit, row in (("fronts.norm", 34), ("epilogue", 58), ("intake", 58)):
        here = [place for name, place in at.items() if name.startswith(unit)]
        assert {y for _, y in here} == {row}
        across = [x for x, _ in here]
        assert max(across) - min(across) < 3 * len(here)
        assert {min(across), max(across)} <= set(range(30, 96)), "in the middle"


def test_a_vector_engine_that_does_not_fit_is_left_to_nextpnr(tmp_path: Path) -> None:
    for rows, enables in ((8, 5), (12, 1)):
        path = write(tmp_path, tree(rows, 8) | engine(enables))
        assert seat(path, "top", LARGE) == 8 * (rows * 2 + rows // 4)


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (3, 2), (5, 3), (8, 8), (12, 13)])
def test_trees_of_any_size_have_a_place_for_each(tmp_path: Path, rows: int, cols: int) -> None:
    path = write(tmp_path, tree(rows, cols))
    assert seat(path, "top", LARGE) == cols * (2 * rows + -(-rows // 4))
    sites = places(path)
    assert len(set(sites.values())) == len(sites)


def test_multipliers_made_of_tables_have_no_place(tmp_path: Path) -> None:
    cells = {n: c for n, c in tree(16, 8).items() if "column_0.multiplier" not in n}
    path = write(tmp_path, cells)
    assert seat(path, "top", LARGE) == 7 * 16 + 8 * 20


def test_more_weights_than_a_device_has_block_rams_are_left_to_nextpnr(tmp_path: Path) -> None:
    names = [f"core.array.column_{n}.weights.low.memory.0.0" for n in range(209)]
    cells = {name: block_ram(4) for name in names}
    path = write(tmp_path, dict(cells))
    assert seat(path, "top", LARGE) == 0
    write(tmp_path, {name: cells[name] for name in names[:208]})
    assert seat(path, "top", LARGE) == 208
    assert seat(path, "top", DEVICES["LFE5U-45F"]) == 0
