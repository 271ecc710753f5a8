"""Checks that a program reads only those accumulator columns that its instructions have computed.

A product with ``n`` columns writes whole rows of ``cols`` accumulators, because a row is one word
of the memory. The last tile may need fewer than ``cols`` columns. The sums in the other columns of
its rows are undefined: they depend on weights that earlier instructions have left in the array. If
the configuration has the option ``sleep``, these columns are disabled, and their sums differ from
those of a configuration without ``sleep``. A program must not read these columns.
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

    A read sets the row's accumulators to zero. Instructions MATMUL and SPARSE then add to the row.
    A program may read only columns that each of these instructions has computed. If no instruction
    has added to the row, the program may read all columns, because they are zero.
    """

    def __init__(self, config: Config):
        self._cols = config.array.cols
        self._whole: NDArray[np.int64] = np.full(config.accumulators.depth, config.array.cols)
        self._by: NDArray[np.int64] = np.zeros(config.accumulators.depth, np.int64)
        self._products: dict[int, str] = {}

    def follow(self, step: Step) -> None:
        """Record which accumulator columns an instruction computes, or check those that it reads.

        The check ensures that a program never reads undefined sums. ``step`` is an instruction that
        the configuration supports:

        - MATMUL and SPARSE add a product to accumulator rows. A product with ``n`` columns computes
          no sums for the remaining columns of its last tile. These columns become undefined.
        - DRAIN, and instructions with the flag ``drain``, read accumulator rows. If ``step`` reads
          an undefined column, :class:`ProgramError` is raised. The read sets the row to zero, so
          that all columns of the row are defined again.
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
