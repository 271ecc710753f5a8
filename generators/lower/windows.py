"""Windowed attention: the keys to which a group of adjacent queries attends.

In windowed attention, a query attends to nearby tokens (its window) and to global tokens.
"""

import math
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.generators.graph.operations import Attention
from celosia.generators.lower.blocks import Part
from celosia.generators.lower.instructions import Count
from celosia.generators.program.draft import LENGTH_REGISTER, Given

Run = tuple[Part, ...]
"""Key rows (first, count) that are adjacent columns; if several, they are gathered first."""


@dataclass(frozen=True)
class Span:
    """The keys to which a group of query rows attends."""

    runs: tuple[Run, ...]
    """Each run begins at a multiple of the array's columns."""
    limit: Count
    """Column after the last one of the first row."""
    limit_step: int = 0
    """Columns by which the limit moves from row to row."""
    start: int = 0
    """First column of the first row."""
    start_step: int = 0
    """Columns by which the start moves from row to row."""

    @property
    def pieces(self) -> tuple[Part, ...]:
        """The keys to which the group of query rows attends, as ranges (first, count) of key rows.

        A row of attention scores has one column for each of these keys. The ranges are in the order
        of the columns.
        """
        return tuple(piece for run in self.runs for piece in run)

    @property
    def columns(self) -> int:
        """Number of keys to which the query rows attend, and of columns in their scores."""
        return sum(count for _, count in self.pieces)


def most_rows(op: Attention, config: Config, most: int) -> int:
    """Return the largest number of query rows whose attention is computed together.

    The number is the smallest of these limits, and at least 1:

    - always: ``most``;
    - windowed attention: twice the number of the array's rows;
    - windowed attention with global tokens: ``op.window`` + 2.
    """
    if not op.window:
        return most
    overlap = op.window + 2 if op.global_tokens else most
    return max(1, min(most, overlap, 2 * config.array.rows))


def span(op: Attention, config: Config, n: int, row: int, m: int) -> Span:
    """Return the keys to which a group of adjacent query rows attends.

    - ``n``: number of keys in the sequence.
    - ``row``, ``m``: index of the group's first row, and number of rows. Either all or none of
      these rows are global tokens.

    A global token attends to all keys. In attention without a window, every token does.
    """
    window, shared = op.window, op.global_tokens
    if not window or row < shared:
        return Span((((0, n),),), Given(LENGTH_REGISTER, n) if op.variable else n)
    first, last = max(shared, row - window), min(n, row + m + window)
    unit = math.lcm(config.array.cols, config.scratchpad.align)
    # Global columns are inserted where the windows of all rows overlap, as a softmax reads one
    # interval of columns: keys 4, 0, 5, 6, 7 for queries 5 and 6, if the window is 1.
    place = max(0, row + m - 1 - window - first) if shared else 0
    aligned = -(-place // unit) * unit
    place = aligned if aligned <= min(last, row + window + 1) - first else place
    start = row - window - first
    return Span(
        _runs([(first, place), (0, shared), (first + place, last - first - place)], unit),
        start + 2 * window + 1 + shared,
        1,
        start,
        1,
    )


def _runs(pieces: list[Part], unit: int) -> tuple[Run, ...]:
    """Return pieces as runs that begin at multiples of ``unit``."""
    runs: list[Run] = []
    pieces = _merged(pieces)
    while pieces:
        first, count = pieces[0]
        whole = count if len(pieces) == 1 else count // unit * unit
        if whole:
            runs.append(((first, whole),))
            pieces = _merged([(first + whole, count - whole), *pieces[1:]])
            continue
        run: list[Part] = []
        rest = unit
        while pieces and rest:
            (first, count), *others = pieces
            part = min(count, rest)
            run.append((first, part))
            rest -= part
            pieces = _merged([(first + part, count - part), *others])
        runs.append(tuple(run))
    return tuple(runs)


def _merged(pieces: list[Part]) -> list[Part]:
    """Return pieces without empty ones, adjacent ones as one."""
    merged: list[Part] = []
    for first, count in pieces:
        if merged and sum(merged[-1]) == first:
            first, count = merged[-1][0], merged.pop()[1] + count
        if count:
            merged.append((first, count))
    return merged
