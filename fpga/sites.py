"""The places that an array's multipliers and weights get on a device: beside each other."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fpga.devices import Device

_ELEMENT = re.compile(r"\.array\.column_(\d+)\.element_(\d+)\.")
_PRODUCT = re.compile(r"\.array\.column_(\d+)\.multiplier_(\d+)\.")
_WEIGHTS = re.compile(r"\.array\.column_(\d+)\.weights\w*\.memory\.0\.(\d+)$")

_MULTIPLIER, _RAM = "MULT18X18D", "DP16KD"
_ENABLES = ("CE0", "CE1", "RST0", "RST1")
_MULTIPLIERS = {0: "MULT18_0", 1: "MULT18_1", 4: "MULT18_4", 5: "MULT18_5"}
"""Multipliers of a block, by their column from the block's first one on."""
_RAMS = {0: "EBR0", 2: "EBR1", 4: "EBR2", 6: "EBR3"}
"""Block RAMs of a block, in the same way."""

Cells = dict[tuple[int, int], dict[str, Any]]
"""Cells of an array by their column and their number in it."""


def seat(netlist: Path, top: str, device: Device) -> int:
    """Give cells of an array places, in a netlist's file, and return how many.

    A column of a systolic array has the column of blocks of its number, four elements in each
    block. The columns of a tree's weights follow each other in the columns of blocks to the right,
    filling them, and their multipliers do so, evenly. An array that is larger than the device, or
    whose multipliers have enables of their own, of which a block has too few, is left to nextpnr;
    so is one on a device whose places are not known.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    cells = design["modules"][top]["cells"]
    elements = _find(cells, _MULTIPLIER, _ELEMENT)
    products, weights = _find(cells, _MULTIPLIER, _PRODUCT), _find(cells, _RAM, _WEIGHTS)
    if any(_own_enables(cell) for cell in (*elements.values(), *products.values())):
        return 0
    places = _columns(elements, device) + _filled(products, weights, device)
    for cell, site in places:
        cell["attributes"]["BEL"] = site
    if places:
        netlist.write_text(json.dumps(design), encoding="utf-8")
    return len(places)


Places = list[tuple[dict[str, Any], str]]


def _find(cells: Mapping[str, dict[str, Any]], kind: str, name: re.Pattern[str]) -> Cells:
    return {
        (int(place[1]), int(place[2])): cell
        for each, cell in cells.items()
        if cell["type"] == kind and (place := name.search(each))
    }


def _own_enables(cell: Mapping[str, Any]) -> bool:
    return any(isinstance(bit, int) for pin in _ENABLES for bit in cell["connections"][pin])


def _sites(blocks: Sequence[int], rows: Sequence[int], inside: Mapping[int, str]) -> list[str]:
    """Return the sites of columns of blocks, each from its first row down."""
    return [
        f"X{block + offset}/Y{row}/{name}"
        for block in blocks
        for row in rows
        for offset, name in inside.items()
    ]


def _columns(elements: Cells, device: Device) -> Places:
    """Give each column of elements a column of blocks."""
    height = len(_MULTIPLIERS) * len(device.multiplier_rows)
    if any(c >= len(device.blocks) or r >= height for c, r in elements):
        return []
    sites = _sites(device.blocks, device.multiplier_rows, _MULTIPLIERS)
    return [(cell, sites[column * height + row]) for (column, row), cell in elements.items()]


def _filled(products: Cells, weights: Cells, device: Device) -> Places:
    """Give columns of weights the last columns of blocks, and products places among them."""
    height = len(_RAMS) * len(device.ram_rows)
    if not 0 < len(weights) <= height * len(device.blocks):
        return []
    blocks = device.blocks[len(device.blocks) - math.ceil(len(weights) / height) :]
    found: Places = []
    for cells, rows, inside in (
        (weights, device.ram_rows, _RAMS),
        (products, device.multiplier_rows, _MULTIPLIERS),
    ):
        sites = _sites(blocks, rows, inside)
        if len(cells) > len(sites):
            return []
        for number, place in enumerate(sorted(cells)):
            found.append((cells[place], sites[number * len(sites) // len(cells)]))
    return found
