"""Places of an array's multipliers on a device."""

import json
from pathlib import Path
from typing import Any

from fpga.devices import DEVICES
from fpga.sites import seat

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


def write(folder: Path, cells: dict[str, Any]) -> Path:
    cells["core.accelerator.vector.scale.high.multiplier"] = multiplier()
    path = folder / "netlist.json"
    path.write_text(json.dumps({"modules": {"top": {"cells": cells}}}), encoding="utf-8")
    return path


def places(path: Path) -> dict[str, str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    return {name: cell["attributes"]["BEL"] for name, cell in cells.items() if cell["attributes"]}


def test_elements_beside_each_other_stand_beside_each_other(tmp_path: Path) -> None:
    path = netlist(tmp_path, 12, 8)
    assert seat(path, "top", LARGE) == 96
    found = places(path)
    assert len(set(found.values())) == len(found) == 96
    at = "core.accelerator.matrix.array.column_{}.element_{}.multiplier.multiplier"
    assert [found[at.format(0, row)] for row in (0, 1, 2, 3, 4)] == [
        "X4/Y10/MULT18_0",
        "X5/Y10/MULT18_1",
        "X8/Y10/MULT18_4",
        "X9/Y10/MULT18_5",
        "X4/Y34/MULT18_0",
    ]
    assert found[at.format(7, 11)] == "X74/Y58/MULT18_5"


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
