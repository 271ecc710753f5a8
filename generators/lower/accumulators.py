"""Rows of the accumulators, of encoders and decoders."""

from celosia.arch.config import Config
from celosia.generators.lower.blocks import even
from celosia.generators.lower.fitting import FitError, doubled

BANKS = 2
"""Banks of the accumulators, which their rows take in turn."""


class Accumulators:
    """Gives out rows: to the next product, or for good to a name."""

    def __init__(self, config: Config, model: str):
        self.depth, self.model, self.config = config.accumulators.depth, model, config
        self._next = 0
        self._named: dict[str, int] = {}
        self._taken = {False: 0, True: 0}

    def restart(self) -> None:
        """Give rows from the start again, so that iterations are alike."""
        self._next = 0

    def take(self, rows: int) -> int:
        """Return the first of so many rows, other ones than the last time."""
        first = 0 if self._next + rows > self.depth else self._next
        self._next = first + rows
        return first

    def named(self, name: str, rows: int, *, later: bool = False) -> int:
        """Return the first of so many rows, an even one, that this name has.

        Names whose sums are there ``later``, when those of all others have been taken, have rows
        from the last one down, all others from the first one up. So they have some of each other's
        where there are few.
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
        """Return how many of m rows of one tile column half of the accumulators take."""
        return even(m, min(m, self.depth // 2))

    def tiles(self, height: int) -> int:
        """Return how many tile columns of so many rows half of the accumulators take."""
        return max(1, self.depth // 2 // height)
