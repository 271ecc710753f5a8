"""Verilator's points of line and toggle coverage, as sets that can be merged."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from celosia.tb.verify.coverage.verilog import CoveredVerilog

KINDS = ("line", "toggle")
"""Kinds of points: a block or an outcome of a condition that runs, and a change of a bit."""

_POINT = re.compile(r"^C '(.*)' (\d+)$")
# What a declaration begins with is done before the first cycle, _start is for simulators, and a
# condition that the parameters decide has one outcome.
_NO_CODE = re.compile(
    r"^  (?:reg|initial|integer)\b|\b_start\b|_entry\b|^    \w+\[\d+\] = |if \(1'h[01]\)"
)


@dataclass
class Points:
    """Coverage points of a Verilog module, all of one kind: line or toggle."""

    all: int
    """Number of points."""
    reached: int = 0
    """Bit mask of the points that a run has reached."""
    impossible: int = 0
    """Bit mask of the points that no inputs can reach, in any of the merged designs. They do not
    lower the coverage."""
    missed: dict[int, str] = field(default_factory=dict)
    """Descriptions of the line points that are not reached, by their numbers."""

    def merge(self, other: Self) -> None:
        """Add the points of ``other``, which another run has reached in the same module.

        The two runs may have simulated different designs that contain this module.
        """
        self.reached |= other.reached
        self.impossible &= other.impossible
        self.missed = {
            number: text for number, text in self.missed.items() if number in other.missed
        }

    @property
    def hits(self) -> int:
        """Number of coverage points that a run has reached."""
        return self.reached.bit_count()

    @property
    def holes(self) -> list[str]:
        """List of descriptions of the line coverage points that a run could reach but did not.

        A line coverage point is a block of code, or one of the two outcomes of a condition. A run
        cannot reach the points in :attr:`impossible`. For toggle coverage points, the list is
        empty.
        """
        return [text for place, text in self.missed.items() if not self.impossible >> place & 1]

    @property
    def count(self) -> int:
        """Number of coverage points that a run could reach."""
        return self.all - (self.impossible & ~self.reached).bit_count()


@dataclass
class ModuleCoverage:
    """Coverage of a module, with the module's ``name``.

    ``points`` is a dictionary from the kind of coverage (``line`` or ``toggle``) to the module's
    points of this kind.
    """

    name: str
    points: dict[str, Points]


Coverage = dict[str, ModuleCoverage]
"""Modules by their keys."""


def read_points(data: Path, verilog: CoveredVerilog) -> Coverage:
    """Return the coverage of a simulated design, a dictionary from a module's key to its coverage.

    ``data`` is Verilator's coverage file. Line points are blocks of code and outcomes of
    conditions; toggle points are both changes of each bit. A module's point is reached if any of
    its instances reaches it.
    """
    counts: dict[str, dict[tuple[int, int, str], int]] = {kind: {} for kind in KINDS}
    for text in data.read_text(encoding="utf-8").splitlines():
        match = _POINT.match(text)
        if match is None:
            continue
        fields = dict(part.partition("\2")[::2] for part in match[1].split("\1")[1:])
        line = int(fields["l"])
        if _NO_CODE.search(verilog.lines[line - 1]) or "_start" in fields["o"]:
            continue
        kind = "toggle" if fields["page"].startswith("v_toggle") else "line"
        key = line, int(fields.get("n", 0)), fields["o"]
        counts[kind][key] = counts[kind].get(key, 0) + int(match[2])
    result: Coverage = {}
    for module in verilog.modules:
        points = {}
        for kind, all_points in counts.items():
            own = [key for key in all_points if key[0] in module.numbers]
            numbered = list(enumerate(sorted(own, key=module.order)))
            points[kind] = Points(
                len(own),
                sum((all_points[key] > 0) << place for place, key in numbered),
                sum(verilog.is_decided(key[0], key[2]) << place for place, key in numbered),
                {
                    place: _describe(key, verilog)
                    for place, key in numbered
                    if kind == "line" and not all_points[key]
                },
            )
        coverage = {module.key: ModuleCoverage(module.name, points)}
        merge(result, coverage)
    return result


def _describe(key: tuple[int, int, str], verilog: CoveredVerilog) -> str:
    line, _, comment = key
    text = verilog.lines[line - 1].strip()
    place = verilog.place(line)
    return f"{comment} of `{text}`" + (f" at {place}" if place else "")


def merge(into: Coverage, other: Coverage) -> None:
    """Merge the coverage of another run, ``other``, into ``into``.

    Both are dictionaries from a module's key (a hash of its Verilog) to the module's coverage.
    Modules that only ``other`` contains are added to ``into``.
    """
    for key, module in other.items():
        if key not in into:
            points = {k: replace(p) for k, p in module.points.items()}
            into[key] = ModuleCoverage(module.name, points)
        else:
            for kind, points in module.points.items():
                into[key].points[kind].merge(points)


def totals(coverage: Iterable[ModuleCoverage]) -> dict[str, tuple[int, int]]:
    """Return the numbers of coverage points, summed over modules.

    The result is a dictionary from the kind of points (``line`` or ``toggle``) to a pair of
    numbers: the points that were reached, and the points that can be reached.
    """
    modules = list(coverage)
    return {
        kind: (
            sum(module.points[kind].hits for module in modules),
            sum(module.points[kind].count for module in modules),
        )
        for kind in KINDS
    }


def to_json(coverage: Coverage) -> dict[str, Any]:
    """Return the coverage of modules as a dictionary that JSON can represent."""
    return {
        key: {
            "name": module.name,
            **{
                kind: [points.all, f"{points.reached:x}", f"{points.impossible:x}", points.missed]
                for kind, points in module.points.items()
            },
        }
        for key, module in coverage.items()
    }


def from_json(described: dict[str, Any]) -> Coverage:
    """Return the coverage of modules from the result of :func:`to_json`."""
    return {
        key: ModuleCoverage(
            module["name"],
            {
                kind: Points(
                    module[kind][0],
                    int(module[kind][1], 16),
                    int(module[kind][2], 16),
                    {int(place): text for place, text in module[kind][3].items()},
                )
                for kind in KINDS
            },
        )
        for key, module in described.items()
    }
