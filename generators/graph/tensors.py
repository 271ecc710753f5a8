"""Integer tensors, and the parameters that requantize sums to tensor elements."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.network import Home
from celosia.sim.requantize import quantize_multiplier

Ints = NDArray[np.int64]
WIDE = 16
"""Width of the elements of the residual stream, of scores and of outputs (bits)."""


@dataclass(frozen=True)
class Tensor:
    """An integer tensor, with the parameters that give the real values of its elements.

    The integer q stands for the real value ``scale * (q - zero)``. If columns have gains, this
    value is multiplied by the column's gain; if columns have offsets, the column's offset is then
    added.
    """

    name: str
    """Name in the float model, or a description."""
    buffer: str
    """Buffer that holds it; tensors of one buffer follow each other in time."""
    rows: int
    """Rows; 0 for one row for each token of a run."""
    columns: int
    scale: float
    zero: int = 0
    width: int = 8
    """Width of an element (bits); 16 bits take two bytes, other widths one."""
    gains: Floats | None = field(default=None, compare=False)
    """Gain of each column, [columns]; None if all are 1."""
    home: Home = Home.SCRATCHPAD
    """The memory that holds the tensor."""
    offsets: Floats | None = field(default=None, compare=False)
    """Real value of the integer 0 in each column, [columns]; None if all are 0."""
    picks: Ints | None = field(default=None, compare=False)
    """Column of the float model for each column, [columns]; None if they are the same."""

    @property
    def steps(self) -> Floats:
        """Quantization scale of each column, [columns], or one scale for all columns, [1]."""
        return self.scale * (np.ones(1) if self.gains is None else self.gains)

    @property
    def wide(self) -> bool:
        """True if the elements are INT16."""
        return self.width == WIDE

    @property
    def element(self) -> int:
        """Size of an element (bytes)."""
        return 2 if self.wide else 1

    @property
    def stride(self) -> int:
        """Bytes from the start of a row to the start of the next row."""
        return self.columns * self.element

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.rows * self.stride


@dataclass(frozen=True)
class Rescale:
    """Requantization parameters: bias, multiplier and shift of each column, [n], or one set, [1].

    See equation (1) of ``docs/numerics.md``.
    """

    bias: Ints
    multiplier: Ints
    shift: Ints

    @property
    def per_tensor(self) -> bool:
        """True if all columns share one set of parameters."""
        return len(self.bias) == 1

    def columns(self, first: int, count: int) -> "Rescale":
        """Return the parameters of the columns ``first`` to ``first + count - 1``.

        The parameters must be separate for each column, not shared by all columns.
        """
        part = slice(first, first + count)
        return Rescale(self.bias[part], self.multiplier[part], self.shift[part])


def rescale_of(bias: ArrayLike, factors: ArrayLike) -> Rescale:
    """Return requantization parameters for integer biases [n] and real multipliers [n]."""
    pairs = [quantize_multiplier(float(factor)) for factor in np.atleast_1d(factors)]
    multiplier, shift = np.array(pairs, np.int64).T
    return Rescale(np.atleast_1d(np.asarray(bias, np.int64)), multiplier, shift)


def quantize(values: NDArray[np.floating], tensor: Tensor) -> Ints:
    """Return real values, quantized to the integers of a tensor.

    Each value is divided by the tensor's scale and rounded to the nearest integer, ties to even.
    The zero point is added, and the result is saturated at the tensor's width. Gains and offsets of
    columns are not applied.
    """
    half = 1 << (tensor.width - 1)
    rounded = np.rint(np.asarray(values, np.float64) / tensor.scale) + tensor.zero
    clipped: Ints = np.clip(rounded, -half, half - 1).astype(np.int64)
    return clipped
