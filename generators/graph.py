"""A quantized model: integer tensors and the operations between them, before any tiling."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arch.formats import OPERAND_BITS
from generators.frontend.description import ModelDescription
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Floats
from generators.network import Description, Home
from generators.reference.floats import unit_rows
from generators.stored import Stored, stored_rows
from sim.requantize import quantize_multiplier

Ints = NDArray[np.int64]
WIDE = 16
"""Width of the elements of the residual stream, of scores and of outputs (bits)."""
ROTARY_STEPS = 256
"""Steps of a query or key in front of the rotation in an INT8 behind it, equation (9)."""
TIMES_STEPS = 4096
"""Steps of a product in the INT8 that it becomes, equation (10)."""


@dataclass(frozen=True)
class Tensor:
    """An integer tensor; element q stands for ``scale * (q - zero)``, times its column's gain."""

    name: str
    """Its name in the float model, or what it is."""
    buffer: str
    """The buffer it lies in; tensors of one buffer follow each other in time."""
    rows: int
    """Rows; 0 for one of each of a run's tokens."""
    columns: int
    scale: float
    zero: int = 0
    width: int = 8
    """Width of an element (bits); one of 16 takes two bytes, any other takes one."""
    gains: Floats | None = field(default=None, compare=False)
    """The gain of each column, [columns]; None where all are 1."""
    home: Home = Home.SCRATCHPAD
    """The memory that it lives in."""
    offsets: Floats | None = field(default=None, compare=False)
    """The real value that the integer 0 stands for in each column, [columns]; None where it is 0.
    """
    picks: Ints | None = field(default=None, compare=False)
    """The column of the float model that each column is, [columns]; None where they are the same.
    """

    @property
    def steps(self) -> Floats:
        """The real value of one step of each column, [columns], or of all alike, [1]."""
        return self.scale * (np.ones(1) if self.gains is None else self.gains)

    @property
    def wide(self) -> bool:
        """Elements are INT16."""
        return self.width == WIDE

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return 2 if self.wide else 1

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return self.columns * self.element

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
        """All columns are alike."""
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
class Embedding:
    """``target = rescale(words[token])``, plus ``positions[place]``."""

    target: Tensor
    words: Ints
    """INT8 vectors, [vocabulary, columns]."""
    rescale: Rescale
    positions: Ints | None
    """INT16 [places, columns]; None where nothing is added."""


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
    polynomial: bool = False
    """The table's bytes are polynomials, of sums rescaled to INT16."""
    residual: bool = False
    """The target's old value is added."""
    stored: Stored | None = None
    """The weights' codes where they are in a format of fewer bits."""
    planes: tuple["Plane", ...] = ()
    """Planes of nested weights, the uppermost first; none of others."""
    low_rank: "LowRank | None" = None
    """Correction that is added to the sums; None where there is none."""
    factors: bool = False
    """The rescale is times the rows' factors, which a deferred norm has left to it."""

    @property
    def size(self) -> int:
        """Number of weights, those of a correction among them."""
        low = self.low_rank
        return self.weight.size + (0 if low is None else low.first.size + low.weight.size)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the weights as they are stored, those of a correction among them."""
        k, n = self.weight.shape
        forms = [plane.stored for plane in self.planes] if self.planes else [self.stored]
        return int(sum(stored_rows(one, k) for one in forms) * n + self.size - k * n)

    @property
    def parts(self) -> list["Linear"]:
        """The products that make it: its own, or each plane's, between a correction's two."""
        low = self.low_rank
        own = [replace(self, weight=one.values, stored=one.stored) for one in self.planes]
        own = own or [self]
        if low is None:
            return own
        thin = low.first.target
        return [low.first, *own, Linear(thin, self.target, low.weight, self.rescale)]

    @property
    def look_up(self) -> tuple[str, ...]:
        """The flag of the instruction that applies the table, if there is one."""
        return () if self.table is None else ("polynomial" if self.polynomial else "table",)


@dataclass(frozen=True)
class Plane:
    """A plane of nested weights."""

    stored: Stored
    bias: Ints
    """Biases of the sums of this plane and those above it, [n]."""

    @property
    def values(self) -> Ints:
        """Operands that are added to those of the planes above, [k, n]."""
        return np.array(self.stored.form.values, np.int64)[self.stored.codes]


@dataclass(frozen=True)
class LowRank:
    """``first.target @ weight`` is added to the sums of a product, equation (18)."""

    first: Linear
    """Makes the thin tensor of what the product takes."""
    weight: Ints
    """INT8 in the steps of the product's sums, [rank, n]."""


@dataclass(frozen=True)
class Norm:
    """``target = rescale(normalize(source))``."""

    source: Tensor
    target: Tensor
    rescale: Rescale
    rms: bool
    eps: int
    """The added variance of equation (4)."""
    deferred: bool = False
    """``target = rescale(source)``: the products that take it multiply by the rows' factors."""


@dataclass(frozen=True)
class Convert:
    """``target = rescale(source)``, from INT16 to INT8 or INT16."""

    source: Tensor
    target: Tensor
    rescale: Rescale


@dataclass(frozen=True)
class Rotary:
    """``target`` is ``source`` with pairs of each head's columns rotated, equation (9).

    An INT8 target has :data:`ROTARY_STEPS` steps of the source in one of its own.
    """

    source: Tensor
    target: Tensor
    pairs: Ints
    """Cosine and sine in Q1.15 of each pair of a head's columns, [places, head's columns]."""


@dataclass(frozen=True)
class Gate:
    """``target = (source - zero) * up``, equation (10)."""

    source: Tensor
    up: Tensor
    target: Tensor


@dataclass(frozen=True)
class Head:
    """Parameters of one head of an attention."""

    probabilities: Rescale
    """From Q0.24 to INT8."""
    context: Rescale
    """From sums over probabilities and values to the target, of all columns or of each."""
    diagonal: int | None
    """Term that is added on the diagonal, in Q0.24; None where attention is not shaped."""


@dataclass(frozen=True)
class Attention:
    """``target = softmax(query @ key.T) @ value`` for each head, on slices of the columns."""

    query: Tensor
    key: Tensor
    value: Tensor
    target: Tensor
    head_dim: int
    """Columns of a head's values."""
    scores: Rescale
    """From sums over queries and keys to INT16 scores in units of 2**-8 octaves.

    Of all heads alike, [1], or of each query head, [heads].
    """
    probability_zero: int
    heads: tuple[Head, ...]
    residual: bool = False
    """The target's old value is added."""
    variable: bool = False
    """Keys behind an inference's last token are masked."""
    kv_bits: int = 8
    """Upper bits of keys and values that are kept, equation (21)."""
    whole: int = 0
    """First columns of each key head whose lower bits are kept, too; of all they are INT8."""
    block: int = 0
    """Columns of values that share an exponent, equation (22), in the place of upper bits; 0: none.
    """
    deferred: bool = False
    """Probabilities are weights, by whose sums, the rows' factors, the contexts are divided."""

    @property
    def key_dim(self) -> int:
        """Columns of a head's queries and keys."""
        return self.query.columns // len(self.heads)

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.query.columns // self.key.columns

    @property
    def prefix(self) -> str:
        """Start of the layer's names."""
        return self.query.name.rpartition(".")[0]


@dataclass(frozen=True)
class Pool:
    """``target = rescale(sum over rows of source)``, the mean of rows."""

    source: Tensor
    target: Tensor
    factor: float
    """Steps of the target in a step of the source."""
    variable: bool = False
    """Rows behind an inference's last token are left out."""

    def rescale(self, rows: int) -> Rescale:
        """Return the parameters of the sum of so many rows."""
        return rescale_of(0, self.factor / rows)


Op = Embedding | Linear | Norm | Convert | Rotary | Gate | Attention | Pool


@dataclass(frozen=True)
class IntegerGraph:
    """A model's operations in integers, in the order in which they run.

    Operations of different layers differ in numbers only: the layers' lists have the same
    operations on the same buffers, with the same shapes and zero points.
    """

    description: Description
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
    def ops(self) -> list[Op]:
        """All operations."""
        return [*self.before, *(op for layer in self.layers for op in layer), *self.after]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all linear layers' weights as they are stored, parameters apart."""
        return sum(op.stored_bytes for op in self.ops if isinstance(op, Linear))


@dataclass(frozen=True)
class QuantizedModel(IntegerGraph):
    """An encoder in integers."""

    description: ModelDescription

    def macs(self, length: int) -> int:
        """Return the products of an inference of some length, none for padding.

        They are those of linear layers and of attention.
        """
        total, padding = 0, self.description.sequence - length
        for op in self.ops:
            if isinstance(op, Linear):
                # A tensor of fewer rows than the input has none for each token.
                left = padding if op.source.rows >= self.input.rows else 0
                total += (op.source.rows - left) * op.size
            elif isinstance(op, Attention):
                rows, keys = op.query.rows - padding, op.key.rows - padding
                total += 2 * rows * keys * op.head_dim * len(op.heads)
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


@dataclass(frozen=True)
class TextGraph(IntegerGraph):
    """A graph over the tokens of a text in integers."""

    description: TextDescription

    @property
    def embedding(self) -> Embedding:
        """The operation that looks tokens up."""
        (found,) = (op for op in self.before if isinstance(op, Embedding))
        return found


@dataclass(frozen=True)
class SourceEncoder(TextGraph):
    """The encoder of an encoder-decoder in integers.

    Behind its output are the operations that make the keys and values of each layer's
    cross-attention.
    """


@dataclass(frozen=True)
class Decoder(TextGraph):
    """A decoder of texts in integers; its output are the scores of all next tokens."""

    source: SourceEncoder | None = None
    """The encoder that runs once over a source, which every token attends to."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of all linear layers' weights as they are stored, the encoder's among them."""
        return super().weight_bytes + (0 if self.source is None else self.source.weight_bytes)

    @cached_property
    def named(self) -> Mapping[str, Op]:
        """Every operation by the name of the tensor that it makes."""
        return {op.target.name: op for op in self.ops}

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each layer."""
        return [op for op in self.ops if isinstance(op, Attention)]

    @property
    def rotary(self) -> Ints | None:
        """The pairs of :class:`Rotary`, the same for all; None where positions are learned."""
        return next((op.pairs for op in self.ops if isinstance(op, Rotary)), None)

    @property
    def kv_bits(self) -> int:
        """Width of the keys and values that are kept (bits)."""
        return self.attentions[0].kv_bits

    @property
    def key_bits(self) -> int:
        """Width of the keys that are kept, apart from whole columns (bits)."""
        return OPERAND_BITS if self.whole == self.key_dim else self.kv_bits

    @property
    def whole(self) -> int:
        """First columns of each key head that are kept in all their bits."""
        return self.attentions[0].whole

    @property
    def block(self) -> int:
        """Columns of values that share an exponent; 0 where none do."""
        return self.attentions[0].block

    @property
    def key_dim(self) -> int:
        """Columns of a head's queries and keys."""
        return self.attentions[0].key_dim

    @property
    def places(self) -> int:
        """Places that texts have, as far as the tables of positions go (tokens)."""
        table = self.embedding.positions if self.rotary is None else self.rotary
        assert table is not None
        return len(table)


def quantize(values: NDArray[np.floating], tensor: Tensor) -> Ints:
    """Return the integers nearest to real values, ties to even, saturated."""
    half = 1 << (tensor.width - 1)
    rounded = np.rint(np.asarray(values, np.float64) / tensor.scale) + tensor.zero
    clipped: Ints = np.clip(rounded, -half, half - 1).astype(np.int64)
    return clipped
