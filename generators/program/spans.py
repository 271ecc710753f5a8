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
    """Return the first cycle after ``accesses`` memory accesses, at most one per cycle.

    The accesses begin in cycle ``now``. In each interval (begin, end, share) of ``spans``, only the
    fraction ``share`` of the cycles ``begin`` to ``end - 1`` is free. ``spans`` is in ascending
    order.
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
    """Cycles ``begin`` to ``end - 1``, in which matrix products write accumulator rows.

    If ``count`` is 0, all row numbers have the same parity. Otherwise the parity changes every
    ``count`` cycles.
    """

    begin: int
    end: int
    parity: int
    """Parity of the first row (0 for even row numbers)."""
    count: int = 0
    """Cycles in which each row is written before the next row, which has the other parity; 0 if all
    rows have the same parity."""

    def wait(self, now: int, parity: int) -> int:
        """Return the number of cycles that a read of an accumulator row waits for a matrix product.

        The read is requested in cycle ``now``. It waits while the matrix product writes rows of the
        same ``parity`` (row number modulo 2).
        """
        if not self.begin <= now < self.end:
            return 0
        rows = (now - self.begin) // self.count if self.count else 0
        if (self.parity + rows) & 1 != parity:
            return 0
        free = self.begin + (rows + 1) * self.count if self.count else self.end
        return min(free, self.end) - now
