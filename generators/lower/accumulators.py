"""Allocation of the accumulators' rows, for encoders and decoders."""

from celosia.arch.config import Config
from celosia.generators.lower.blocks import even
from celosia.generators.lower.fitting import FitError, doubled

BANKS = 2
"""Banks of the accumulators, to which rows belong alternately."""


class Accumulators:
    """Allocates rows: for the next product, or permanently for a name."""

    def __init__(self, config: Config, model: str):
        self.depth, self.model, self.config = config.accumulators.depth, model, config
        self._next = 0
        self._named: dict[str, int] = {}
        self._taken = {False: 0, True: 0}

    def restart(self) -> None:
        """Allocate rows from the start again, so that iterations are alike."""
        self._next = 0

    def take(self, rows: int) -> int:
        """Return the first of ``rows`` rows, different ones from the last call's."""
        first = 0 if self._next + rows > self.depth else self._next
        self._next = first + rows
        return first

    def named(self, name: str, rows: int, *, later: bool = False) -> int:
        """Return the first of the ``rows`` rows, an even one, that belong to a name.

        Names whose sums are computed ``later``, after all others have been drained, get rows from
        the last one down; all others get rows from the first one up. So the two groups overlap if
        there are few rows.
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
        """Return the number of m rows of one tile column that fit half of the accumulators."""
        return even(m, min(m, self.depth // 2))

    def tiles(self, height: int) -> int:
        """Return the number of tile columns of a height that fit half of the accumulators."""
        return max(1, self.depth // 2 // height)
