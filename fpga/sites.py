"""The places that an array's multipliers get on a device: beside each other."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpga.devices import Device

_ELEMENT = re.compile(r"\.array\.column_(\d+)\.element_(\d+)\.")

_MULTIPLIER = "MULT18X18D"
_ENABLES = ("CE0", "CE1", "RST0", "RST1")
_MULTIPLIERS = {0: "MULT18_0", 1: "MULT18_1", 4: "MULT18_4", 5: "MULT18_5"}
"""Multipliers of a block, by their column from the block's first one on."""

Cells = dict[tuple[int, int], dict[str, Any]]
"""Cells of an array by their column and their number in it."""


def seat(netlist: Path, top: str, device: Device) -> int:
    """Give a systolic array's multipliers places, in a netlist's file, and return how many.

    A column of elements has the column of blocks of its number, four elements in each block. An
    array that is larger than the device, or whose multipliers have enables of their own, of which a
    block has too few, is left to nextpnr; so is one on a device whose places are not known.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    cells = design["modules"][top]["cells"]
    elements = _find(cells)
    if any(_own_enables(cell) for cell in elements.values()):
        return 0
    places = _columns(elements, device)
    for cell, site in places:
        cell["attributes"]["BEL"] = site
    if places:
        netlist.write_text(json.dumps(design), encoding="utf-8")
    return len(places)


Places = list[tuple[dict[str, Any], str]]


def _find(cells: Mapping[str, dict[str, Any]]) -> Cells:
    return {
        (int(place[1]), int(place[2])): cell
        for name, cell in cells.items()
        if cell["type"] == _MULTIPLIER and (place := _ELEMENT.search(name))
    }


def _own_enables(cell: Mapping[str, Any]) -> bool:
    return any(isinstance(bit, int) for pin in _ENABLES for bit in cell["connections"][pin])


def _columns(elements: Cells, device: Device) -> Places:
    """Give each column of elements a column of blocks, from its first row down."""
    height = len(_MULTIPLIERS) * len(device.multiplier_rows)
    if any(c >= len(device.blocks) or r >= height for c, r in elements):
        return []
    sites = [
        f"X{block + offset}/Y{row}/{name}"
        for block in device.blocks
        for row in device.multiplier_rows
        for offset, name in _MULTIPLIERS.items()
    ]
    return [(cell, sites[column * height + row]) for (column, row), cell in elements.items()]
