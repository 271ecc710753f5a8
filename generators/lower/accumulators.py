"""Allocation of accumulator rows, for encoders and decoders."""

from celosia.arch.config import Config
from celosia.generators.lower.blocks import even
from celosia.generators.lower.fitting import FitError, doubled

BANKS = 2
"""Banks of the accumulators, to which rows belong alternately."""


class Accumulators:
    """Allocates accumulator rows, in which the array sums up matrix products.

    - Temporary rows (:meth:`take`) are used again for later products.
    - Named rows (:meth:`named`) are reserved: each call with the same name returns the same rows.
    """

    def __init__(self, config: Config, model: str):
        self.depth, self.model, self.config = config.accumulators.depth, model, config
        self._next = 0
        self._named: dict[str, int] = {}
        self._taken = {False: 0, True: 0}

    def restart(self) -> None:
        """Make all temporary rows free: the next allocation begins at accumulator row 0.

        If each iteration of a loop begins with this call, all iterations use the same rows.
        """
        self._next = 0

    def take(self, rows: int) -> int:
        """Reserve ``rows`` accumulator rows for temporary sums, and return the first row.

        The rows follow those of the previous call. If too few rows are left, they begin at row 0,
        where they replace rows of other temporary sums.
        """
        first = 0 if self._next + rows > self.depth else self._next
        self._next = first + rows
        return first

    def named(self, name: str, rows: int, *, later: bool = False) -> int:
        """Reserve ``rows`` accumulator rows for the sums ``name``, and return the first row (even).

        Another call with the same name returns the same row. If ``later`` is true, rows are
        reserved from the last accumulator row down, otherwise from row 0 up. Rows of the two kinds
        may overlap, so their sums must not exist at the same time. Raises :class:`FitError` if
        there are too few rows.
        """
        if name not in self._named:
            before = self._taken[later]
            used = before + rows + rows % BANKS
            first = self.depth // BANKS * BANKS - used if later else before
            if before + rows > self.depth or first < 0:
                raise FitError(
                    f"Model {self.model} needs {before + rows} accumulator rows or more, but "
                    f"acc_depth is {self.depth}",
                    doubled(self.config, "acc_depth", before + rows),
                )
            self._named[name], self._taken[later] = first, used
        return self._named[name]

    def height(self, m: int) -> int:
        """Return the number of rows in each part of a matrix product with ``m`` rows.

        The parts are multiplied one after another. A part may have at most half as many rows as the
        accumulators. There are as few parts as possible. All have the same number of rows, except
        that the last one may have fewer.
        """
        return even(m, min(m, self.depth // 2))

    def tiles(self, height: int) -> int:
        """Return the largest number of tile columns whose sums fit half of the accumulator rows.

        A tile column is a range of columns as wide as the array, and its sums need ``height``
        accumulator rows. The result is at least 1.
        """
        return max(1, self.depth // 2 // height)
