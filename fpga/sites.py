"""Assigns FPGA sites to the multipliers of the array, and nearby block RAMs to its weights."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.packages import Deferred
from celosia.fpga.devices import Device

_optimize: Any = Deferred("scipy.optimize", "Places of multipliers need")

_ELEMENT = re.compile(r"\.array\.column_(\d+)\.element_(\d+)\.")
_FACTOR = re.compile(r"\.array\.column_(\d+)\.multiplier_(\d+)\.")
_UNIT = re.compile(r"\.vector\.((?:fronts\.)?\w+)\.")
_WEIGHTS = re.compile(r"\.array\.column_(\d+)\.weights\w*\.(low|high)\.memory\.0\.(\d+)$")

_MULTIPLIER, _RAM = "MULT18X18D", "DP16KD"
_ENABLES = ("CE0", "CE1", "RST0", "RST1")
_MULTIPLIERS = {0: "MULT18_0", 1: "MULT18_1", 4: "MULT18_4", 5: "MULT18_5"}
"""Dictionary from a column of a block, from 0 on, to the name of its multiplier site."""
_RAMS = {0: "EBR0", 2: "EBR1", 4: "EBR2", 6: "EBR3"}
"""Dictionary from a column of a block, from 0 on, to the name of its block RAM site."""

Cells = dict[tuple[Any, ...], dict[str, Any]]
"""Cells of an array; the key begins with the number of the array's column."""
Places = list[tuple[dict[str, Any], str]]
Site = tuple[int, int, str]
"""A site of the device: (column, row, name)."""
_BLOCK_ENABLES = 4
"""Number of different enables that the multipliers of a block can have."""


def seat(netlist: Path, top: str, device: Device) -> int:
    """Assign device sites to multipliers and block RAMs; return the number of assigned sites.

    The sites are written into the file ``netlist``. The array gets sites; if it has adder trees,
    also its weight memories and the vector engine. The result is 0 if the device's sites are
    unknown, the array does not fit, or multipliers have separate enables.
    """
    # Column c of a systolic array takes column c of the device's multiplier groups. Of adder trees
    # with weights in block RAM, half of the columns go from the left side inwards, the others from
    # the right, and multipliers of the vector engine between them, by unit.
    design = json.loads(netlist.read_text(encoding="utf-8"))
    cells = design["modules"][top]["cells"]
    elements, weights = _find(cells, _MULTIPLIER, _ELEMENT), _find(cells, _RAM, _WEIGHTS)
    factors = _find(cells, _MULTIPLIER, _FACTOR)
    if any(_own_enables(cell) for cell in [*elements.values(), *factors.values()]):
        return 0
    places = _columns(elements, device)
    if weights and _fits(factors, weights, device):
        others = sum(cell["type"] == _MULTIPLIER for cell in cells.values()) - len(factors)
        halves = _halves(factors, weights, others, device)
        places += halves + _between(cells, {site for _, site in halves}, device)
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
    """Assign each column of elements to a column of blocks, from its first row down."""
    height = len(_MULTIPLIERS) * len(device.multiplier_rows)
    if any(c >= len(device.blocks) or r >= height for c, r in elements):
        return []
    sites = _sites(device, device.multiplier_rows, _MULTIPLIERS)
    return [(cell, _text(sites[column * height + row])) for (column, row), cell in elements.items()]


def _fits(multipliers: Cells, weights: Cells, device: Device) -> bool:
    sites = len(_sites(device, device.multiplier_rows, _MULTIPLIERS))
    return len(multipliers) <= sites and len(weights) <= len(_sites(device, device.ram_rows, _RAMS))


def _halves(multipliers: Cells, weights: Cells, others: int, device: Device) -> Places:
    """Assign a tree's columns to blocks from both sides of the device on, half of them from each.

    Each column gets the next sites of a side, its multipliers in the order in which the tree adds
    them. Sites that ``others`` do not need are left out before them. Its block RAMs get the sites
    with the shortest total distance to the multipliers. Block RAMs that columns share belong to one
    of them.
    """
    with_own = sorted({column for column, _ in multipliers})
    shared = {at: next((own for own in with_own if own >= at), at) for at, *_ in weights}
    columns = sorted({*shared.values()})
    rows = 1 + max((row for _, row in multipliers), default=0)
    half = (len(columns) + 1) // 2
    places: Places = []
    for side, some in ((1, columns[:half]), (-1, columns[: half - 1 : -1])):
        free = _sites(device, device.multiplier_rows, _MULTIPLIERS)[::side]
        spare = max(0, len(free) - len(multipliers) - others) // 2
        free_rams = iter(_sites(device, device.ram_rows, _RAMS)[::side])
        for column in some:
            own = [row for at, row in sorted(multipliers) if at == column]
            rams = [key for key in sorted(weights) if shared[key[0]] == column]
            sites = [*itertools.islice(free_rams, len(rams))]
            tried = [_assigned(own, rams, free[first:], sites, rows) for first in range(spare + 1)]
            skipped = min(range(spare + 1), key=lambda first: tried[first][0])
            spare -= skipped
            _, here, beside = tried[skipped]
            free = free[skipped + len(own) :]
            places += [(multipliers[column, row], _text(site)) for row, site in here.items()]
            places += [(weights[ram], _text(site)) for ram, site in beside.items()]
    return places


def _assigned(
    own: Sequence[int],
    rams: Sequence[tuple[Any, ...]],
    free: Sequence[Site],
    sites: Sequence[Site],
    rows: int,
) -> tuple[int, dict[int, Site], dict[tuple[Any, ...], Site]]:
    """Return the distance of weights to multipliers at the first free sites, and both's sites."""
    here = dict(zip(own, free, strict=False))
    ways = np.array([[_way(key, site, rams, rows, here) for site in sites] for key in rams])
    places = _optimize.linear_sum_assignment(ways)
    beside = {rams[ram]: sites[site] for ram, site in zip(*places, strict=True)}
    return int(ways[places].sum()), here, beside


def _between(cells: Mapping[str, dict[str, Any]], occupied: set[str], device: Device) -> Places:
    """Assign free sites in the middle of the device to the vector engine's multipliers.

    Those of a unit are in one row, beside each other, the largest unit's first. If a unit finds no
    row, or they have more enables than a block, all are left to nextpnr.
    """
    units: dict[str, list[str]] = {}
    enables: set[int] = set()
    for name in sorted(cells):
        if cells[name]["type"] == _MULTIPLIER and (unit := _UNIT.search(name)):
            units.setdefault(unit[1], []).append(name)
            pins = cells[name]["connections"]
            enables |= {bit for pin in _ENABLES for bit in pins[pin] if isinstance(bit, int)}
    if len(enables) > _BLOCK_ENABLES:
        return []
    rows: list[tuple[list[Site], list[str]]] = []
    mean = sum(device.multiplier_rows) / len(device.multiplier_rows)
    for row in sorted(device.multiplier_rows, key=lambda row: (abs(row - mean), -row)):
        sites = _sites(device, [row], _MULTIPLIERS)
        rows.append(([site for site in sites if _text(site) not in occupied], []))
    for _, names in sorted(units.items(), key=lambda unit: (-len(unit[1]), unit[0])):
        room = [here for free, here in rows if len(here) + len(names) <= len(free)]
        if not room:
            return []
        room[0].extend(names)
    places: Places = []
    for free, here in rows:
        sites = _together(free, len(here)) if here else []
        places += [(cells[name], _text(site)) for name, site in zip(here, sites, strict=True)]
    return places


def _together(free: Sequence[Site], count: int) -> Sequence[Site]:
    """Return ``count`` free sites of a row that are nearest each other, the most central ones."""
    middle = (len(free) - count + 1) / 2
    first = min(
        range(len(free) - count + 1),
        key=lambda first: (free[first + count - 1][0] - free[first][0], abs(first - middle)),
    )
    return free[first : first + count]


def _way(
    ram: tuple[Any, ...],
    site: Site,
    rams: Sequence[tuple[Any, ...]],
    rows: int,
    here: Mapping[int, Site],
) -> int:
    """Return the distance of a block RAM's weights at a site to their multipliers, for all rows."""
    *half, number = ram
    count = sum([*other_ram[:2]] == half for other_ram in rams)
    served = range(number * rows // count, -(-(number + 1) * rows // count))
    return sum(
        abs(here[row][0] - site[0]) + abs(here[row][1] - site[1]) for row in served if row in here
    )


def _sites(device: Device, rows: Sequence[int], kinds: Mapping[int, str]) -> list[Site]:
    """Return the sites of a kind, one column of blocks after another."""
    return [
        (block + offset, row, name)
        for block in device.blocks
        for row in rows
        for offset, name in kinds.items()
    ]


def _text(site: Site) -> str:
    return f"X{site[0]}/Y{site[1]}/{site[2]}"
