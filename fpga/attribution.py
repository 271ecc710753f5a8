"""Assigns each cell of a flattened netlist to a unit of the design, by the name of the cell."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from celosia.fpga.devices import Family

_BEL = re.compile(r"X(\d+)/?Y(\d+)/")
_PREFIX = re.compile(r"^\\?(?:[a-z0-9_]*_(?=[A-Z]))?")
"""Beginning of the name of a component's module: a backslash of Yosys's, and the top module's
name."""

_NUMBERED = re.compile(r"_\d+$")
GROUPS = 16
"""Number of units that a report lists separately."""


class Units:
    """The module instances in a flattened netlist.

    ``kinds`` is a dictionary from an instance's path to the name of its module. In the Verilog,
    names of modules begin with the top module's name; ``kinds`` has them without this prefix.
    """

    def __init__(self, netlist: Path, top: str):
        module = json.loads(netlist.read_text(encoding="utf-8"))["modules"][top]
        self.kinds: dict[str, str] = {}
        for name, cell in module["cells"].items():
            if cell["type"] == "$scopeinfo":
                self.kinds[_plain(name)] = _PREFIX.sub(
                    "", str(cell["attributes"].get("module", ""))
                )

    def path(self, cell: str) -> str:
        """Return the path of the innermost instance that contains a cell; "" for the top module."""
        parts = _plain(cell).split(".")
        for length in range(len(parts), 0, -1):
            path = ".".join(parts[:length])
            if path in self.kinds:
                return path
        return ""

    def unit(self, cell: str) -> str:
        """Return the innermost instance that contains a cell, as the text "PATH (MODULE)".

        PATH is the path of the instance, and MODULE the name of its module. The text is "the top"
        if only the top module contains the cell.
        """
        path = self.path(cell)
        return f"{path} ({self.kinds[path]})" if path else "the top"


def _plain(name: str) -> str:
    return name.replace("$flatten", "").replace("\\", "")


def groups(paths: Sequence[str], limit: int = GROUPS) -> dict[str, str]:
    """Return a dictionary from the path of each module instance to the path of a large instance.

    ``paths`` has the instance of each cell, such as ``vector.norm``. The ``limit`` instances with
    the most cells are large. An instance is mapped to the innermost large one around it, or to "".
    Numbered instances, such as ``array.column_3``, count as ``array``.
    """
    sizes: Counter[str] = Counter()
    for path in paths:
        sizes.update(_around(path))
    largest = {path for path, _ in sizes.most_common(limit)}
    return {
        path: next((path_around for path_around in _around(path) if path_around in largest), "")
        for path in paths
    }


def _around(path: str) -> list[str]:
    """Return the instances around a path and itself, the innermost first."""
    parts = path.split(".") if path else []
    alike = next((place for place, part in enumerate(parts) if _NUMBERED.search(part)), len(parts))
    return [".".join(parts[:length]) for length in range(alike, 0, -1)]


def count_units(
    family: Family, placed: Path, units: Units
) -> tuple[dict[str, dict[str, int]], list[tuple[int, int, str]]]:
    """Return the numbers of cells in each large module instance, and the place of each cell.

    The large instances are those of :func:`groups`, and "the top" for all others. The first result
    has numbers of cells by resource, such as ``luts``. The second has (column, row, large instance)
    of each cell. ``placed`` is nextpnr's placed netlist.
    """
    modules = json.loads(placed.read_text(encoding="utf-8"))["modules"]
    cells: Mapping[str, Any] = max(modules.values(), key=lambda module: len(module["cells"]))[
        "cells"
    ]
    paths = {name: units.path(name) for name in cells}
    group = groups(list(paths.values()))
    counted: dict[str, Counter[str]] = {}
    places = []
    for name, cell in cells.items():
        mine = group[paths[name]]
        bel = _BEL.match(str(cell["attributes"].get("NEXTPNR_BEL", "")))
        if bel is None:
            continue
        places.append((int(bel[1]), int(bel[2]), mine))
        for resource, kinds in family.placed.items():
            if cell["type"] in kinds:
                counted.setdefault(mine, Counter())[resource] += 1
    return {name or "the top": dict(counts) for name, counts in counted.items()}, places


def critical_path(report: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """Return the slowest path within a clock domain in nextpnr's ``report``, as a dictionary.

    - ``from``, ``to``: the first and the last cell of the path.
    - ``ns``: delay of the path.
    - ``units``: list of dictionaries, one for each module instance along the path: ``unit`` (the
      name), ``logic_ns`` and ``routing_ns``.

    The dictionary is empty if the report has no path within a clock domain.
    """
    paths = [path for path in report["critical_paths"] if path["from"] == path["to"]]
    if not paths:
        return {}
    path = max(paths, key=lambda candidate: sum(step["delay"] for step in candidate["path"]))[
        "path"
    ]
    steps: list[dict[str, Any]] = []
    for step in path:
        unit = units.unit(step["to"]["cell"])
        kind = "routing_ns" if step["type"] == "routing" else "logic_ns"
        if not steps or steps[-1]["unit"] != unit:
            steps.append({"unit": unit, "logic_ns": 0.0, "routing_ns": 0.0})
        steps[-1][kind] = round(steps[-1][kind] + step["delay"], 3)
    return {
        "from": path[0]["from"]["cell"],
        "to": path[-1]["to"]["cell"],
        "ns": round(sum(step["delay"] for step in path), 3),
        "units": steps,
    }
