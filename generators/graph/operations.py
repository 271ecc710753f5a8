"""Integer operations of a quantized model on whole tensors, before tiling."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from celosia.generators.graph.stored import Stored, stored_rows
from celosia.generators.graph.tensors import Ints, Rescale, Tensor, rescale_of

ROTARY_STEPS = 256
"""Steps of a query or key before the rotation in one INT8 step after it, equation (9)."""
TIMES_STEPS = 4096
"""Steps of a product in one step of its INT8 result, equation (10)."""


@dataclass(frozen=True)
class Embedding:
    """A token embedding: each row of ``target`` is a token's vector, requantized (``rescale``).

    The vector of token t is row t of ``words``. If there is a table ``positions``, the row of this
    table for the token's position is added after the requantization.
    """

    target: Tensor
    words: Ints
    """INT8 vectors, [vocabulary, columns]."""
    rescale: Rescale
    positions: Ints | None
    """INT16 [places, columns]; None if none is added."""


@dataclass(frozen=True)
class Linear:
    """A linear layer: ``source @ weight`` is requantized (``rescale``) and written to ``target``.

    Row 0 of the result is written to row ``row`` of the target. After the requantization, an
    activation may be applied (``relu`` or ``table``), or the target's earlier content may be added
    (``residual``).
    """

    source: Tensor
    target: Tensor
    weight: Ints
    """Symmetric weights, [k, n]."""
    rescale: Rescale
    row: int = 0
    """First written row of the target."""
    relu: bool = False
    table: Ints | None = None
    """Activation table, [256], applied to the rescaled sums."""
    polynomial: bool = False
    """The table holds polynomials of sums rescaled to INT16."""
    residual: bool = False
    """The target's old value is added."""
    stored: Stored | None = None
    """The weights' codes if they are in a format of fewer bits."""
    planes: tuple["Plane", ...] = ()
    """Planes of nested weights, highest first; empty for other weights."""
    low_rank: "LowRank | None" = None
    """Correction added to the sums; None without one."""
    factors: bool = False
    """The rescale is multiplied by the rows' factors from a deferred norm."""

    def data(self, rows: slice, columns: slice) -> NDArray[np.uint8]:
        """Return the stored bytes of a part of the weights, as uint8 [rows of bytes, columns].

        ``rows`` and ``columns`` are slices of the weight matrix [k, n]. A byte is an INT8 weight.
        In a format of fewer bits, a byte has the codes of several weights or a scale, see
        :meth:`Stored.data`.
        """
        if self.stored is None:
            return self._operands[rows, columns]
        return self.stored.data(rows, columns)

    @cached_property
    def _operands(self) -> NDArray[np.uint8]:
        """The bytes of the weights, [k, n]."""
        return self.weight.astype(np.int8).view(np.uint8)

    @property
    def size(self) -> int:
        """Number of weights, including the weights of a low-rank correction."""
        low = self.low_rank
        return self.weight.size + (0 if low is None else low.first.size + low.weight.size)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the stored weights, including the weights of a low-rank correction."""
        k, n = self.weight.shape
        forms = [plane.stored for plane in self.planes] if self.planes else [self.stored]
        return int(sum(stored_rows(form, k) for form in forms) * n + self.size - k * n)

    @property
    def parts(self) -> list["Linear"]:
        """List of the matrix products that compute this layer, each as a linear layer.

        Nested weights have one product for each bit plane, other weights have one product. A
        low-rank correction adds a product with its first matrix at the beginning, and one with its
        second matrix at the end.
        """
        low, correction = self.low_rank, self.correction
        own = [replace(self, weight=plane.values, stored=plane.stored) for plane in self.planes]
        own = own or [self]
        return own if low is None or correction is None else [low.first, *own, correction]

    @cached_property
    def correction(self) -> "Linear | None":
        """Linear layer with the second matrix of the low-rank correction; None if there is none.

        A low-rank correction adds the product of two thin matrices to the weights. The source of
        the returned layer is this layer's input times the first matrix.
        """
        if self.low_rank is None:
            return None
        thin, weight = self.low_rank.first.target, self.low_rank.weight
        return Linear(thin, self.target, weight, self.rescale)

    @property
    def look_up(self) -> tuple[str, ...]:
        """Tuple with the name of the instruction flag that applies the layer's activation table.

        It is a flag of DRAIN, the instruction that requantizes the layer's sums. If the layer has
        no table, the tuple is empty.
        """
        return () if self.table is None else ("polynomial" if self.polynomial else "table",)


@dataclass(frozen=True)
class Plane:
    """A bit plane of nested weights: the same two or four bits of every weight of a layer.

    A program may use only the planes of the upper bits, as coarser weights.
    """

    stored: Stored
    bias: Ints
    """Biases for the sums of this plane and those above it, [n]."""

    @property
    def values(self) -> Ints:
        """The number that this bit plane adds to each weight, [k, n].

        A weight is the sum of its numbers in all bit planes.
        """
        return np.array(self.stored.form.values, np.int64)[self.stored.codes]


@dataclass(frozen=True)
class LowRank:
    """Low-rank correction of a layer: a product of two thin matrices, added to the weights.

    ``first`` multiplies the layer's input by the first matrix; ``weight`` is the second matrix. See
    equation (18) of ``docs/formats.md``.
    """

    first: Linear
    """Computes the thin tensor from the product's input."""
    weight: Ints
    """INT8 in the steps of the product's sums, [rank, n]."""


@dataclass(frozen=True)
class Norm:
    """A normalization of each row of ``source``, or of each head's columns if ``heads`` is not 0.

    The result is requantized (``rescale``) and written to ``target``. It is an RMS normalization if
    ``rms`` is true, otherwise a layer normalization.
    """

    source: Tensor
    target: Tensor
    rescale: Rescale
    rms: bool
    eps: int
    """The constant added to the variance in equation (4)."""
    deferred: bool = False
    """``target = rescale(source)``; the products that read it multiply by the rows' factors."""
    heads: int = 0
    """Heads of a row that are normalized separately and share parameters; 0 for whole rows."""

    @property
    def width(self) -> int:
        """Number of columns that are normalized together: those of a head, or of a whole row."""
        return self.source.columns // max(self.heads, 1)


@dataclass(frozen=True)
class Convert:
    """A conversion of a tensor to another scale or width: ``target = rescale(source)``.

    An INT16 source becomes INT8, or INT16 with another scale. An INT8 source becomes INT16 by a
    product with the identity matrix.
    """

    source: Tensor
    target: Tensor
    rescale: Rescale

    @property
    def product(self) -> bool:
        """True if the source is INT8, false if it is INT16.

        An INT8 source is converted by a product with the identity matrix.
        """
        return not self.source.wide


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding: ``target`` is ``source`` with rotated pairs of each head's columns.

    The angle of a pair depends on the position of the row's token: equation (9) of
    ``docs/numerics.md``. The scale of an INT8 target is 256 (:data:`ROTARY_STEPS`) times the scale
    of the source.
    """

    source: Tensor
    target: Tensor
    pairs: Ints
    """Cosine and sine in Q1.15 of each pair of a head's columns, [places, head's columns]; a single
    row stands for all places."""

    def at(self, places: Ints) -> Ints:
        """Return the cosines and sines that rotate a head at token positions ``places``.

        The result [places, columns] has the rows of the table ``pairs`` for these positions.
        """
        return self.pairs[places % len(self.pairs)]


@dataclass(frozen=True)
class Gate:
    """The elementwise product in a gated MLP: ``target = (source - zero) * up``, requantized.

    ``source`` is the gate layer's output after the activation, with the zero point ``zero``. ``up``
    is the output of the other linear layer. See equation (10) of ``docs/numerics.md``.
    """

    source: Tensor
    up: Tensor
    target: Tensor


@dataclass(frozen=True)
class Head:
    """Requantization parameters of one attention head."""

    probabilities: Rescale
    """From Q0.24 to INT8."""
    context: Rescale
    """From sums over probabilities and values to the target, for all columns or for each."""
    diagonal: int | None
    """Term added on the diagonal, in Q0.24; None if attention is not shaped."""


@dataclass(frozen=True)
class Attention:
    """Integer attention: ``target = softmax(query @ key.T) @ value`` for each head.

    A head is a slice of columns. The scores, the probabilities and the result are requantized. The
    requantization of the scores (``scores``) includes the factor 1 / sqrt(head_dim).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    target: Tensor
    head_dim: int
    """Columns of a head's values."""
    scores: Rescale
    """From sums over queries and keys to INT16 scores in units of 2**-8 octaves: for all heads,
    [1], or for each query head, [heads]."""
    probability_zero: int
    heads: tuple[Head, ...]
    residual: bool = False
    """The target's old value is added."""
    variable: bool = False
    """Keys after an inference's last token are masked."""
    kv_bits: int = 8
    """Stored upper bits of keys and values, equation (21)."""
    full_width_key_columns: int = 0
    """First columns of each key head whose lower bits are stored too; if all columns, keys are
    INT8."""
    block: int = 0
    """Columns of values that share an exponent, equation (22), instead of storing upper bits; 0:
    none."""
    deferred: bool = False
    """Probabilities are unnormalized weights; contexts are divided by their sums, the rows'
    factors."""
    window: int = 0
    """Tokens to each side to which a token attends, besides itself; 0 for all tokens."""
    global_tokens: int = 0
    """First tokens, which attend to all tokens and all tokens to them."""

    @property
    def key_dim(self) -> int:
        """Number of columns of a head's queries and keys."""
        return self.query.columns // len(self.heads)

    @property
    def group(self) -> int:
        """Number of query heads that share a key head."""
        return self.query.columns // self.key.columns

    @property
    def alike(self) -> bool:
        """True if all heads have the same requantization parameters."""
        return all(head == self.heads[0] for head in self.heads)

    @property
    def prefix(self) -> str:
        """Start of the names of this attention's tensors, such as ``layers.0``."""
        return self.query.name.rpartition(".")[0]


@dataclass(frozen=True)
class Pool:
    """``target`` is the mean of the rows of ``source``: their sum, requantized (``rescale``)."""

    source: Tensor
    target: Tensor
    factor: float
    """Steps of the target in one step of the source."""
    variable: bool = False
    """Rows after an inference's last token are excluded."""

    def rescale(self, rows: int) -> Rescale:
        """Return the requantization parameters that turn a sum of ``rows`` rows into a mean."""
        return rescale_of(0, self.factor / rows)


Op = Embedding | Linear | Norm | Convert | Rotary | Gate | Attention | Pool
