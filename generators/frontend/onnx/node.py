"""An ONNX node; each input is a constant, a view or a mask (see the module ``values``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.onnx.function_cache import FunctionCache
from celosia.generators.frontend.onnx.values import (
    Index,
    Tensor,
    UnsupportedError,
    Value,
    View,
)
from celosia.generators.frontend.weights import Floats

Array = NDArray[np.generic]
Fold = Callable[[Sequence[Any]], list[Array]]
"""Computes a node from the numbers of all of its inputs."""


@dataclass(frozen=True)
class Node:
    """An ONNX node: its name, operator (``kind``), attributes and input values.

    Each input is a constant array, a :class:`View` (elements of a tensor that the graph computes)
    or a :class:`Mask` (a value that depends only on which tokens are padding). An optional input
    that the graph omits is None.
    """

    name: str
    kind: str
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    fold: Fold
    opset: int
    """Version of ONNX's operators that the graph is written in."""
    cache: FunctionCache = field(repr=False)

    def attribute(self, name: str, default: Any) -> Any:
        """Return the value of the attribute ``name``, or ``default`` if the node does not have it.

        Bytes are decoded to a string.
        """
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def view(self, place: int) -> View:
        """Return the input with index ``place`` (from 0) as a :class:`View` without a function.

        A view contains elements of a tensor, and may apply a function to them. If the input has a
        function, the result is a view of a tensor with the function's results. Raises
        :class:`UnsupportedError` if the input is no view, or its function is not supported.
        """
        value = self.inputs[place]
        if not isinstance(value, View):
            raise UnsupportedError("it does not take the model's data where that is expected")
        return self.cache.without_function(value)

    def constant(self, place: int, absent: Floats | None = None) -> Floats:
        """Return the constant input with index ``place`` (from 0) as a float64 array.

        If the node does not have this input, the result is ``absent``. Raises
        :class:`UnsupportedError` if the input is not constant, or if the node does not have it and
        ``absent`` is None.
        """
        value = self.inputs[place] if place < len(self.inputs) else None
        if value is None and absent is not None:
            return absent
        if not isinstance(value, np.ndarray):
            raise UnsupportedError("a weight is not constant")
        return value.astype(np.float64)


def whole(tensor: Tensor, shape: Sequence[int]) -> View:
    """Return a view of all elements of a tensor, in the tensor's order, with the given shape."""
    return View(tensor, tuple(shape))


def full_rows(view: View) -> Index:
    """Return the indices of the tensor rows in a view, in the order of the view.

    Raises :class:`UnsupportedError` if a row of the view is not a complete row of the tensor, with
    all columns in their order.
    """
    rows, columns = view.layout()
    if not np.array_equal(columns, np.arange(view.tensor.columns)):
        raise UnsupportedError("it does not take all columns of its input, in their order")
    return rows


def same_rows(view: View, tensor: Tensor) -> View:
    """Return a view of the rows of ``tensor`` that have the row numbers in ``view``.

    For example, if ``view`` has elements from rows 2, 0 and 1 of another tensor, the result has the
    complete rows 2, 0 and 1 of ``tensor``. Each row of ``view`` must come from a single tensor row.
    """
    rows = view.index[..., :1] // view.tensor.columns
    return View(tensor, rows * tensor.columns + np.arange(tensor.columns))
