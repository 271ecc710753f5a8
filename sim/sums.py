"""The columns of accumulators that a program may take: those that its products summed.

A product of ``n`` columns adds to whole rows of ``cols`` accumulators, as they lie in one word of
the memory. In the columns of its last tile past ``n`` it leaves what the array computes there, of
weights that slots hold or of columns that sleep: nothing that a program may ask for.
"""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.isa import Opcode
from celosia.sim.flow import Step
from celosia.sim.regions import Region, ceil_div

_PRODUCTS = (Opcode.MATMUL, Opcode.SPARSE)


class Sums:
    """The columns of each accumulator row that every product since it was last taken has summed.

    All of them are of a row that no product has added to, whose accumulators are zero.
    """

    def __init__(self, config: Config):
        self._cols = config.array.cols
        self._whole: NDArray[np.int64] = np.full(config.accumulators.depth, config.array.cols)
        self._by: NDArray[np.int64] = np.zeros(config.accumulators.depth, np.int64)
        self._products: dict[int, str] = {}

    def follow(self, step: Step) -> None:
        """Note what a step adds, or see whether it may take what it takes.

        Raises :class:`ProgramError` where it takes a column that a product to the same row left
        out. The step must be one that the configuration can run.
        """
        if step.opcode in _PRODUCTS:
            self._add(step)
        elif step.opcode == Opcode.DRAIN:
            self._take(step, "acc")
        elif "drain" in step.flags:
            self._take(step, "i")

    def _rows(self, step: Step, name: str) -> tuple[NDArray[np.int64], int]:
        """Return the rows of each tile, [tiles, m], and the columns of the last tile."""
        tiles = ceil_div(step["n"], self._cols)
        region = Region("acc", step[f"{name}_addr"], step[f"{name}_stride"], tiles, step["m"])
        return region.cells(), step["n"] - (tiles - 1) * self._cols

    def _add(self, step: Step) -> None:
        rows, width = self._rows(step, "acc")
        narrowed = rows[-1][self._whole[rows[-1]] > width]
        self._whole[narrowed], self._by[narrowed] = width, step.address
        self._products[step.address] = str(step)

    def _take(self, step: Step, name: str) -> None:
        rows, width = self._rows(step, name)
        needed = np.full(rows.shape, self._cols)
        needed[-1] = width
        lacking = np.argwhere(self._whole[rows] < needed)
        if len(lacking):
            tile, place = lacking[0]
            row = int(rows[tile, place])
            raise ProgramError(
                f"{step} takes {needed[tile, place]} columns of accumulator row {row}, of which "
                f"{self._products[int(self._by[row])]} has summed {self._whole[row]}"
            )
        self._whole[rows] = self._cols
