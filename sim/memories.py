"""The golden machine's memories, and the methods with which instructions read and write them."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.sim.flow import Step
from celosia.sim.regions import Region
from celosia.sim.report import signature
from celosia.sim.sums import Sums

Ints = NDArray[np.int64]


class Memories:
    """The golden machine's memories, including external memory; all are zero at first.

    ``argmax`` and ``argmax_value`` are the values of host registers ARGMAX and ARGMAX_VALUE.
    """

    def __init__(self, config: Config):
        self.config = config
        self.dram: NDArray[np.uint8] = np.zeros(1 << config.memory.addr_width, np.uint8)
        self.sp: NDArray[np.uint8] = np.zeros(config.scratchpad.bytes, np.uint8)
        self.acc: Ints = np.zeros((config.accumulators.depth, config.array.cols), np.int64)
        self.bias: Ints = np.zeros((config.vector.words, config.vector.lanes), np.int64)
        self.multiplier: Ints = np.zeros((config.vector.words, config.vector.lanes), np.int64)
        self.shift: Ints = np.zeros((config.vector.words, config.vector.lanes), np.int64)
        self.factors: Ints = np.zeros((2, config.row_factors), np.int64)
        """Mantissas and shifts of the rows' factors that are kept."""
        self.tables: Ints = np.zeros((config.table_slots, 256), np.int64)
        self.slots: Ints = np.zeros(
            (config.array.weight_depth, config.array.rows, config.array.cols), np.int64
        )
        self.argmax = 0
        self.argmax_value = 0
        self._signatures: list[int] = []
        self._written: list[int] = []
        self._macs = 0
        self._sums = Sums(config)

    def read_rows(self, step: Step, name: str, *, wide: bool) -> Ints:
        """Return a matrix operand of an instruction from the scratchpad: signed integers [m, n].

        ``name`` is the prefix of two operands of the instruction ``step``: for example, ``o`` reads
        the matrix at ``o_addr`` with row stride ``o_stride`` (bytes). Elements have 16 bits if
        ``wide`` is true, otherwise 8.
        """
        return self._read(step, name, step["m"], step["n"], wide)

    def _read(self, step: Step, name: str, m: int, count: int, wide: bool = False) -> Ints:
        """Return m rows of count signed scratchpad elements (8 or 16 bits), [m, count]."""
        width = 2 if wide else 1
        region = Region("sp", step[f"{name}_addr"], step[f"{name}_stride"], m, count * width)
        data = np.ascontiguousarray(self.sp[region.cells()])  # [m, count * width]
        return data.view("<i2" if wide else np.int8).astype(np.int64)

    def _write(self, step: Step, name: str, values: Ints, wide: bool) -> int:
        """Write rows of elements to the scratchpad and return the signature of the bytes."""
        data = np.ascontiguousarray(values, "<i2" if wide else np.int8).view(np.uint8)  # [m, bytes]
        addr, stride = step[f"{name}_addr"], step[f"{name}_stride"]
        cells = Region("sp", addr, stride, *data.shape).cells()
        self.sp[cells] = data
        return signature(cells, data)

    def _retire(self) -> None:
        self._signatures.append(sum(self._written) % (1 << 64))
        self._written = []
