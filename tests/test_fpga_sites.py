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


def block_ram(width: int) -> dict[str, Any]:
    parameters = {"DATA_WIDTH_B": f"{width:032b}"}
    return {"type": "DP16KD", "attributes": {}, "connections": {}, "parameters": parameters}


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


def test_a_trees_weights_lie_across_the_device(tmp_path: Path) -> None:
    at = "core.accelerator.matrix.array.column_{}."
    cells: dict[str, Any] = {}
    for column in range(8):
        parts = [("low", number) for number in range(16)] + [("high", 0), ("high", 1)]
        for part, number in parts:
            name = at.format(column) + f"weights_45.{part}.memory.0.{number}"
            cells[name] = block_ram(4 if part == "low" else 36)
    path = write(tmp_path, cells)
    assert seat(path, "top", LARGE) == 8 * 18
    found = places(path)
    assert len(set(found.values())) == len(found)
    assert {site.split("/")[1] for site in found.values()} == {"Y46", "Y70", "Y82"}
    for column in range(8):
        here = [site for name, site in found.items() if at.format(column) in name]
        across = [int(site.split("/")[0][1:]) for site in here]
        assert max(across) - min(across) < 20
    # The part of 36 bits is behind what else has these bits.
    first = [at.format(0) + f"weights_45.{cell}" for cell in ("low.memory.0.7", "high.memory.0.0")]
    assert [found[name] for name in first] == ["X8/Y70/EBR2", "X8/Y82/EBR2"]


def test_more_weights_than_a_device_has_block_rams_are_left_to_nextpnr(tmp_path: Path) -> None:
    names = [f"core.array.column_{n}.weights.low.memory.0.0" for n in range(209)]
    cells = {name: block_ram(4) for name in names}
    path = write(tmp_path, dict(cells))
    assert seat(path, "top", LARGE) == 0
    write(tmp_path, {name: cells[name] for name in names[:208]})
    assert seat(path, "top", LARGE) == 208
    assert seat(path, "top", DEVICES["LFE5U-45F"]) == 0
