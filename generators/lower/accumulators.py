"""Rows of the accumulators, of encoders and decoders."""

from arch.config import Config
from generators.fitting import FitError, doubled
from generators.lower.blocks import even

BANKS = 2
"""Banks of the accumulators, which their rows take in turn."""


class Accumulators:
    """Gives out rows: to the next product, or for good to a name."""

    def __init__(self, config: Config, model: str):
        self.depth, self.model, self.config = config.acc_depth, model, config
        self._next = 0
        self._named: dict[str, tuple[int, int]] = {}

    def restart(self) -> None:
        """Give rows from the start again, so that iterations are alike."""
        self._next = 0

    def take(self, rows: int) -> int:
        """Return the first of so many rows, other ones than the last time."""
        first = 0 if self._next + rows > self.depth else self._next
        self._next = first + rows
        return first

    def named(self, name: str, rows: int) -> int:
        """Return the first of so many rows, an even one, that only this name has."""
        if name not in self._named:
            first = sum(count + count % BANKS for _, count in self._named.values())
            if first + rows > self.depth:
                raise FitError(
                    f"Model {self.model} needs {first + rows} accumulator rows or more, but "
                    f"acc_depth is {self.depth}",
                    doubled(self.config, "acc_depth", first + rows),
                )
            self._named[name] = first, rows
        return self._named[name][0]

    def height(self, m: int) -> int:
        """Return how many of m rows of one tile column half of the accumulators take."""
        return even(m, min(m, self.depth // 2))

    def tiles(self, height: int) -> int:
        """Return how many tile columns of so many rows half of the accumulators take."""
        return max(1, self.depth // 2 // height)
