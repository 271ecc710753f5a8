"""Checks that a program reads only those accumulator columns that its instructions have computed.

The columns of a product's last tile beyond its ``n`` columns are undefined.
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
    """Records, for each accumulator row, the columns that a program may read.

    A program may read the columns that every product since the row's last read has computed. A read
    sets the row to zero; all columns of such a row may be read.
    """

    def __init__(self, config: Config):
        self._cols = config.array.cols
        self._whole: NDArray[np.int64] = np.full(config.accumulators.depth, config.array.cols)
        self._by: NDArray[np.int64] = np.zeros(config.accumulators.depth, np.int64)
        self._products: dict[int, str] = {}

    def follow(self, step: Step) -> None:
        """Record accumulator columns that an instruction computes, or check those that it reads.

        Raises :class:`ProgramError` if the instruction reads a column that an earlier product left
        undefined. A read sets its accumulator row to zero, so that all columns of the row are
        defined.
        """
        if step.opcode in _PRODUCTS:
            self._add(step)
        elif step.opcode == Opcode.DRAIN:
            self._take(step, "acc")
        elif "drain" in step.flags:
            self._take(step, "i")

    def _rows(self, step: Step, name: str) -> tuple[NDArray[np.int64], int]:
        """Return the accumulator rows of each tile, [tiles, m], and the last tile's columns."""
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
                f"{step} takes {needed[tile, place]} columns of accumulator row {row}, but "
                f"{self._products[int(self._by[row])]} has summed {self._whole[row]}"
            )
        self._whole[rows] = self._cols
