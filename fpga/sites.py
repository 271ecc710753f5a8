"""The places that an array's multipliers and weights get on a device: beside each other."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpga.devices import Device

_ELEMENT = re.compile(r"\.array\.column_(\d+)\.element_(\d+)\.")
_WEIGHTS = re.compile(r"\.array\.column_(\d+)\.weights\w*\.(low|high)\.memory\.0\.(\d+)$")

_MULTIPLIER, _RAM = "MULT18X18D", "DP16KD"
_ENABLES = ("CE0", "CE1", "RST0", "RST1")
_MULTIPLIERS = {0: "MULT18_0", 1: "MULT18_1", 4: "MULT18_4", 5: "MULT18_5"}
"""Multipliers of a block, by their column from the block's first one on."""
_RAMS = {0: "EBR0", 2: "EBR1", 4: "EBR2", 6: "EBR3"}
"""Block RAMs of a block, likewise."""

Cells = dict[tuple[Any, ...], dict[str, Any]]
"""Cells of an array by their column and their place in it."""
Places = list[tuple[dict[str, Any], str]]


def seat(netlist: Path, top: str, device: Device) -> int:
    """Give cells of an array places, in a netlist's file, and return how many.

    A column of a systolic array has the column of blocks of its number, four elements in each
    block. A tree's weights lie across the device, its columns side by side, in as few of the last
    rows of block RAMs as hold them. An array that is larger than the device, or whose multipliers
    have enables of their own, of which a block has too few, is left to nextpnr; so is one on a
    device whose places are not known.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    cells = design["modules"][top]["cells"]
    elements, weights = _find(cells, _MULTIPLIER, _ELEMENT), _find(cells, _RAM, _WEIGHTS)
    if any(_own_enables(cell) for cell in elements.values()):
        return 0
    places = _columns(elements, device) + _across(weights, device)
    for cell, site in places:
        cell["attributes"]["BEL"] = site
    if places:
        netlist.write_text(json.dumps(design), encoding="utf-8")
    return len(places)


def _find(cells: Mapping[str, dict[str, Any]], kind: str, name: re.Pattern[str]) -> Cells:
    return {
        tuple(int(part) if part.isdigit() else part for part in place.groups()): cell
        for each, cell in cells.items()
        if cell["type"] == kind and (place := name.search(each))
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


def _across(weights: Cells, device: Device) -> Places:
    """Give weights the last rows of blocks, evenly from one side to the other."""
    width = len(_RAMS) * len(device.blocks)
    needed = math.ceil(len(weights) / width) if width else 0
    if not 0 < needed <= len(device.ram_rows):
        return []
    sites = [
        f"X{block + offset}/Y{row}/{name}"
        for block in device.blocks
        for offset, name in _RAMS.items()
        for row in device.ram_rows[-needed:]
    ]

    def last_bit(place: tuple[Any, ...]) -> tuple[Any, ...]:
        column, part, number = place
        bits = int(weights[place]["parameters"]["DATA_WIDTH_B"], 2)
        return column, (number + 1) * bits, part

    order = enumerate(sorted(weights, key=last_bit))
    return [(weights[place], sites[number * len(sites) // len(weights)]) for number, place in order]
