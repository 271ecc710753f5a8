"""Spans of cycles in which matrix products access the scratchpad and the accumulators."""

from collections.abc import Container, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reads:
    """Span of cycles, ``begin`` to ``end`` - 1, in which a matrix product reads the scratchpad."""

    begin: int
    end: int
    banks: tuple[int | None, int | None]
    """Bank of the activations, which are read in every cycle, and of the weights; None without
    reads."""
    lines: int
    """Stored lines of weights, evenly distributed over these cycles."""

    def share(self, banks: Container[int | None]) -> float:
        """Return the fraction of cycles in which a matrix product reads none of ``banks``.

        ``banks`` has numbers of scratchpad banks. The cycles are those from :attr:`begin` to
        :attr:`end` - 1, in which the product reads the scratchpad.
        """
        if self.banks[0] in banks:
            return 0.0
        return max(1 - self.lines / (self.end - self.begin), 0.0) if self.banks[1] in banks else 1.0


def after_accesses(now: int, accesses: int, spans: Iterable[tuple[int, int, float]]) -> int:
    """Return the first cycle after all memory accesses of a command.

    The command makes ``accesses`` memory accesses, at most one in each cycle, from cycle ``now``
    on. In some intervals of cycles, other accesses have priority. ``spans`` lists these intervals
    in ascending order. An interval (begin, end, share) has the cycles ``begin`` to ``end`` - 1. The
    command can make accesses in only the fraction ``share`` of these cycles.

    For example, a command makes 5 accesses from cycle 10 on. The only interval has the cycles 12 to
    19 and a share of 0.5. The command makes 2 accesses in cycles 10 and 11, and 3 accesses in
    cycles 12 to 17. The result is 18.
    """
    left = float(accesses)
    for begin, end, share in spans:
        if end <= max(now, begin):
            continue
        if now + left <= begin:
            break
        left -= max(begin - now, 0)
        now = max(now, begin)
        if share * (end - now) >= left:
            left /= share
            break
        left -= share * (end - now)
        now = end
    return now + round(left)


@dataclass(frozen=True)
class AccumulatorSpan:
    """A span of cycles, ``begin`` to ``end`` - 1, in which matrix products write accumulator rows.

    Accumulator rows with even numbers are in one memory, rows with odd numbers in another.
    Therefore a command that reads an accumulator row waits while a product writes a row of the same
    parity. The first row of the span has the parity ``parity``. If ``count`` is not 0, each row is
    written for ``count`` cycles, and the next row has the other parity. If ``count`` is 0, all rows
    of the span have the parity ``parity``.
    """

    begin: int
    end: int
    parity: int
    """Parity of the first row (0 for even row numbers)."""
    count: int = 0
    """Cycles in which each row is written before the next row, which has the other parity; 0 if all
    rows have the same parity."""

    def wait(self, now: int, parity: int) -> int:
        """Return the number of cycles that a command waits before it reads an accumulator row.

        The command requests the row in cycle ``now``. ``parity`` is the row's number modulo 2. The
        command waits only if, in cycle ``now``, a matrix product writes rows of the same parity. It
        then waits until the product writes a row of the other parity, or until cycle :attr:`end`.

        For example, :attr:`begin` is 100, :attr:`end` is 112, :attr:`count` is 4, and
        :attr:`parity` is 0. Products then write an even row in cycles 100 to 103, an odd row in
        cycles 104 to 107, and an even row in cycles 108 to 111. A request for an even row in cycle
        101 waits 3 cycles.
        """
        if not self.begin <= now < self.end:
            return 0
        rows = (now - self.begin) // self.count if self.count else 0
        if (self.parity + rows) & 1 != parity:
            return 0
        free = self.begin + (rows + 1) * self.count if self.count else self.end
        return min(free, self.end) - now
