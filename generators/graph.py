"""A quantized model: integer tensors and the operations between them, before any tiling."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from generators.frontend.description import ModelDescription
from generators.frontend.weights import Floats
from generators.reference.float_model import unit_rows
from sim.requantize import quantize_multiplier

Ints = NDArray[np.int64]
WIDE = 16
"""Width of the elements of the residual stream, of scores and of outputs (bits)."""


@dataclass(frozen=True)
class Tensor:
    """An integer tensor; element q stands for ``scale * (q - zero)``, times its column's gain."""

    name: str
    """Its name in the float model, or what it is."""
    buffer: str
    """The buffer it lies in; tensors of one buffer follow each other in time."""
    rows: int
    columns: int
    scale: float
    zero: int = 0
    width: int = 8
    """Width of an element (bits); one of 16 takes two bytes, any other takes one."""
    gains: Floats | None = field(default=None, compare=False)
    """The gain of each column, [columns]; None where all are 1."""

    @property
    def steps(self) -> Floats:
        """The real value of one step of each column, [columns], or of all alike, [1]."""
        return self.scale * (np.ones(1) if self.gains is None else self.gains)

    @property
    def wide(self) -> bool:
        """Whether elements are INT16."""
        return self.width == WIDE

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return self.columns * (2 if self.wide else 1)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.rows * self.stride


@dataclass(frozen=True)
class Rescale:
    """Parameters of equation (1): of each column, [n], or of all columns alike, [1]."""

    bias: Ints
    multiplier: Ints
    shift: Ints

    @property
    def per_tensor(self) -> bool:
        """Whether all columns are alike."""
        return len(self.bias) == 1

    def columns(self, first: int, count: int) -> "Rescale":
        """Return the parameters of some columns of those that are not alike."""
        part = slice(first, first + count)
        return Rescale(self.bias[part], self.multiplier[part], self.shift[part])


def rescale_of(bias: ArrayLike, factors: ArrayLike) -> Rescale:
    """Return the parameters of integer biases and real factors, [n] each."""
    pairs = [quantize_multiplier(float(factor)) for factor in np.atleast_1d(factors)]
    multiplier, shift = np.array(pairs, np.int64).T
    return Rescale(np.atleast_1d(np.asarray(bias, np.int64)), multiplier, shift)


@dataclass(frozen=True)
class Linear:
    """``target[row:] = rescale(source @ weight)``, then an activation or a residual added."""

    source: Tensor
    target: Tensor
    weight: Ints
    """Symmetric weights, [k, n]."""
    rescale: Rescale
    row: int = 0
    """First row of the target that is written."""
    relu: bool = False
    table: Ints | None = None
    """Activation table, [256], applied to the rescaled sums."""
    residual: bool = False
    """Whether the target's old value is added."""


@dataclass(frozen=True)
class Norm:
    """``target = rescale(normalize(source))``."""

    source: Tensor
    target: Tensor
    rescale: Rescale
    rms: bool
    eps: int
    """The added variance of equation (4)."""


@dataclass(frozen=True)
class Convert:
    """``target = rescale(source)``, from INT16 to INT8."""

    source: Tensor
    target: Tensor
    rescale: Rescale


@dataclass(frozen=True)
class Head:
    """What differs from head to head of an attention."""

    probabilities: Rescale
    """From Q0.24 to INT8."""
    context: Rescale
    """From sums over probabilities and values to the target."""
    diagonal: int | None
    """What is added on the diagonal, in Q0.24; None where attention is not shaped."""


@dataclass(frozen=True)
class Attention:
    """``target = softmax(query @ key.T) @ value`` for each head, on slices of the columns."""

    query: Tensor
    key: Tensor
    value: Tensor
    target: Tensor
    head_dim: int
    scores: Rescale
    """From sums over queries and keys to INT16 scores in units of 2**-8 octaves."""
    probability_zero: int
    heads: tuple[Head, ...]
    residual: bool = False
    """Whether the target's old value is added."""
    variable: bool = False
    """Whether keys behind an inference's last token are masked."""


@dataclass(frozen=True)
class Pool:
    """``target = rescale(sum over rows of source)``, the mean of rows."""

    source: Tensor
    target: Tensor
    factor: float
    """Steps of the target in a step of the source."""
    variable: bool = False
    """Whether rows behind an inference's last token are left out."""

    def rescale(self, rows: int) -> Rescale:
        """Return the parameters of the sum of so many rows."""
        return rescale_of(0, self.factor / rows)


Op = Linear | Norm | Convert | Attention | Pool


@dataclass(frozen=True)
class QuantizedModel:
    """A model in integers.

    Operations of different layers differ in numbers only: the layers' lists have the same
    operations on the same buffers, with the same shapes and zero points.
    """

    description: ModelDescription
    input: Tensor
    output: Tensor
    stream: Tensor
    """The residual stream; its scale is the same everywhere."""
    start: Ints | None
    """The stream before the first operation, [sequence, dim]; None where nothing reads it."""
    before: tuple[Op, ...]
    layers: tuple[tuple[Op, ...], ...]
    after: tuple[Op, ...]

    @property
    def macs(self) -> int:
        """Products of one inference, those of linear layers and attention, none for padding."""
        total = 0
        for op in [*self.before, *(op for layer in self.layers for op in layer), *self.after]:
            if isinstance(op, Linear):
                total += op.source.rows * op.weight.size
            elif isinstance(op, Attention):
                total += 2 * op.query.rows * op.key.rows * op.head_dim * len(op.heads)
        return total

    def quantize_input(self, values: NDArray[np.floating]) -> NDArray[np.signedinteger]:
        """Return inputs [..., tokens, features] as the machine takes them.

        Without linear embedding these are the rows that :func:`lookup` gives.
        """
        return quantize(values, self.input).astype("<i2" if self.input.wide else np.int8)

    def dequantize_output(self, values: NDArray[np.signedinteger]) -> NDArray[np.float64]:
        """Return outputs [..., rows, columns] of the machine as real numbers."""
        real: NDArray[np.float64] = self.output.scale * (np.asarray(values, np.float64))
        return unit_rows(real) if self.description.unit else real


def quantize(values: NDArray[np.floating], tensor: Tensor) -> Ints:
    """Return the integers nearest to real values, ties to even, saturated."""
    half = 1 << (tensor.width - 1)
    rounded = np.rint(np.asarray(values, np.float64) / tensor.scale) + tensor.zero
    clipped: Ints = np.clip(rounded, -half, half - 1).astype(np.int64)
    return clipped
