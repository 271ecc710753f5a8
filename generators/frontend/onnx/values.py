"""Values in an ONNX graph: tensors [tokens, columns], views of their elements, and masks.

A :class:`View` stores the tensor index of each element, so the importer knows which elements a
product multiplies after other nodes have moved them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.weights import Floats

Function = Callable[[Floats], Floats]
Index = NDArray[np.int64]

_FAR = np.geomspace(10.0, 1e4, 13)
SAMPLES = np.concatenate([-_FAR[::-1], np.linspace(-9.0, 9.0, 1801), _FAR])
"""Arguments at which functions are compared; a bound as that of a Clip may be far from 0."""


class UnsupportedError(Exception):
    """Raised if a node's computation cannot be expressed in a model description."""


@dataclass(eq=False, kw_only=True)
class Tensor:
    """The result [rows, columns] of a graph's node, with one row for each token."""

    node: str
    rows: int
    columns: int

    def into(self, kind: "type[_Of]", node: str, **fields: Any) -> "_Of":
        """Return a tensor of class ``kind`` that the node named ``node`` computes from this tensor.

        ``fields`` are further fields of the result. If they do not include ``rows`` or ``columns``,
        the result has this tensor's ``rows`` or ``columns``.
        """
        return kind(
            **{"rows": self.rows, "columns": self.columns, **fields}, node=node, source=self
        )


@dataclass(eq=False, kw_only=True)
class Input(Tensor):
    """The input of a graph: feature vectors, or token numbers."""

    tokens: bool


@dataclass(eq=False, kw_only=True)
class Opaque(Tensor):
    """The result of ONNX nodes that match no operation of the machine; the host computes it."""


@dataclass(eq=False, kw_only=True)
class Of(Tensor):
    """Base class of tensors that a node computes from a single other tensor, ``source``."""

    source: Tensor


_Of = TypeVar("_Of", bound=Of)


@dataclass(eq=False, kw_only=True)
class Patches(Of):
    """Elements of a graph's input, arranged as a tensor [rows, columns]; a row is one patch."""

    places: Index
    """Place in the input of each element, -1 for padding; [rows, columns]."""


@dataclass(eq=False, kw_only=True)
class RowMean(Of):
    """A tensor [rows, 1] with the mean of each row of another tensor.

    If ``squares`` is true, the tensor has the mean of the squares of each row's elements instead.
    """

    squares: bool


@dataclass(eq=False, kw_only=True)
class Centred(Of):
    """A tensor whose rows are those of another tensor minus the mean of each row."""


@dataclass(eq=False, kw_only=True)
class NormTerm(Of):
    """A term of a LayerNorm: ``(a * x + b * mean + c) * gamma / sqrt(variance + epsilon) + beta``.

    ``x`` is the source tensor. The mean and the variance are those of each row of ``x``.
    """

    epsilon: float
    gamma: Floats
    beta: Floats
    parts: tuple[float, ...]
    """The numbers (a, b, c); the complete LayerNorm has (1, -1, 0)."""


@dataclass(eq=False, kw_only=True)
class ZeroedPadding(Of):
    """A copy of another tensor in which the rows of padding tokens are set to zero.

    If ``summed`` is true, the tensor is the sum of all rows of this copy, [1, columns].
    """

    summed: bool = False


@dataclass(eq=False, kw_only=True)
class Lookup(Of):
    """Rows of an embedding table, selected by the token numbers of an input."""

    table: Floats


@dataclass(eq=False, kw_only=True)
class Prepend(Of):
    """A tensor that has a constant first row, [columns], followed by the rows of another tensor.

    The constant row is usually the vector of a class token.
    """

    row: Floats


@dataclass(eq=False, kw_only=True)
class Shift(Of):
    """The sum of another tensor and a constant array ``values``, both [rows, columns]."""

    values: Floats


@dataclass(eq=False, kw_only=True)
class Linear(Of):
    """The output of a linear layer: ``source @ weight.T + bias``."""

    weight: Floats
    bias: Floats


@dataclass(eq=False, kw_only=True)
class Affine(Of):
    """A tensor ``gains * source + shifts``, where gains and shifts are [columns].

    If ``source`` is the output of a linear layer or norm, no :class:`Affine` is used. Instead, the
    importer multiplies the weights of that layer or norm by the gains, and adds the shifts to the
    bias.
    """

    gains: Floats
    shifts: Floats


@dataclass(eq=False, kw_only=True)
class Norm(Of):
    """The output of a norm: each row of ``source`` is normalized, times ``gamma``, plus ``beta``.

    If ``rms`` is true, the norm is an RMS norm, which does not subtract the mean; otherwise it is a
    LayerNorm.
    """

    gamma: Floats
    beta: Floats
    epsilon: float
    rms: bool


@dataclass(eq=False, kw_only=True)
class Activation(Of):
    """The result of an elementwise function of another tensor.

    ``function`` is the function's key in :data:`celosia.arch.functions.FUNCTIONS`.
    """

    function: str


@dataclass(eq=False, kw_only=True)
class Sum(Tensor):
    """A tensor that is the sum of two tensors, such as a residual connection."""

    left: Tensor
    right: Tensor


@dataclass(eq=False, kw_only=True)
class Mean(Of):
    """A tensor [1, columns]: the mean over all rows of another tensor."""


@dataclass(eq=False, kw_only=True)
class Scores(Tensor):
    """Attention scores, [heads * rows, rows]: products of queries and keys.

    If ``softmax`` is true, the tensor is the softmax of these products over the keys.
    """

    query: Tensor
    key: Tensor
    query_columns: Index
    """[heads, head_dim]"""
    key_columns: Index
    """[heads, head_dim]"""
    factor: float
    variable: bool = False
    """True if a mask removes keys."""
    causal: bool = False
    """True if a query attends to no later key."""
    window: int = 0
    """Keys to each side to which a query attends; 0 for all."""
    global_tokens: int = 0
    """First tokens that attend to all tokens, and all tokens to them."""
    softmax: bool = False


@dataclass(eq=False, kw_only=True)
class Largest(Of):
    """The maximum of each row of attention scores, [heads * rows, 1]."""


@dataclass(eq=False, kw_only=True)
class Context(Tensor):
    """The result of an attention, [rows, heads * head_dim].

    Each head computes sums of the values, weighted by the softmax of its scores. The columns of
    head 0 come first, then those of head 1, and so on.
    """

    scores: Scores
    value: Tensor
    value_columns: Index
    """[heads, head_dim]"""


@dataclass(eq=False, kw_only=True)
class PoolingScores(Tensor):
    """Weights of the tokens in a pooling by attention, which computes a weighted sum of tokens.

    The weights are the softmax of products of constant queries and computed keys. This class
    represents both the products and their softmax.
    """


@dataclass(frozen=True, eq=False)
class View:
    """An array that contains elements of a tensor in any arrangement and shape.

    If ``function`` is not None, this elementwise function is applied to the elements.
    """

    tensor: Tensor
    places: Index | tuple[int, ...]
    """:attr:`index`; if it would be 0, 1, 2 and so on, only its shape, as a tuple."""
    function: Function | None = None

    @property
    def index(self) -> Index:
        """Index of each element in the flattened :attr:`tensor`: an array in the view's shape.

        An element from row r and column c of the tensor has the index ``r * tensor.columns + c``.
        """
        if isinstance(self.places, tuple):
            return np.arange(math.prod(self.places)).reshape(self.places)
        return self.places

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the view."""
        return self.places if isinstance(self.places, tuple) else self.places.shape

    @property
    def ordered(self) -> bool:
        """True if the view contains all elements of :attr:`tensor`, row by row."""
        size = self.tensor.rows * self.tensor.columns
        if isinstance(self.places, tuple):
            return True
        flat = self.places.ravel()
        return flat.size == size and np.array_equal(flat, np.arange(size))

    def apply(self, function: Function) -> "View":
        """Return a view that applies ``function`` to each element of this view.

        If this view already has a function, that function is applied first.
        """
        inner = self.function

        def composed(x: Floats) -> Floats:
            # Where a function is looked at outside of its domain it is none that has a name.
            with np.errstate(all="ignore"):
                return function(x if inner is None else inner(x))

        return replace(self, function=composed)

    def factor(self) -> float | None:
        """Return the constant by which the view's function multiplies its argument.

        The result is 1 if the view has no function, and None if the function does not just multiply
        by a constant.
        """
        if self.function is None:
            return 1.0
        outputs = self.function(SAMPLES)
        factor = float(self.function(np.ones(1))[0])
        with np.errstate(all="ignore"):
            same = np.allclose(outputs, factor * SAMPLES, rtol=1e-6, atol=1e-9)
        return factor if same else None

    def layout(self) -> tuple[Index, Index]:
        """Return the row numbers and the column numbers of the tensor's elements in the view.

        For example, ([2, 0], [1, 0]) stands for columns 1 and 0 of row 2, then of row 0. Raises
        :class:`UnsupportedError` if the view is empty, if rows of the view have different columns,
        or if one row has elements of several tensor rows.
        """
        index = np.atleast_1d(self.index)
        if not index.size:
            raise UnsupportedError("its result has no elements")
        flat = index.reshape(-1, index.shape[-1])
        rows, columns = np.divmod(flat, self.tensor.columns)
        if np.any(rows != rows[:, :1]) or np.any(columns != columns[0]):
            raise UnsupportedError("it does not work on the columns of whole tokens")
        return rows[:, 0], columns[0]


@dataclass(frozen=True, eq=False)
class Mask:
    """A value of a graph that depends only on which tokens are valid and which are padding."""

    full: NDArray[np.generic]
    """The value if all tokens are valid."""
    cut: NDArray[np.generic]
    """The value if only the last token is padding."""


Value = View | Mask | NDArray[np.generic]
