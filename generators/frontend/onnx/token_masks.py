"""Masks that an ONNX graph computes from token numbers."""

import math

import numpy as np

from celosia.generators.frontend.onnx.node import Node
from celosia.generators.frontend.onnx.values import Input, Mask, UnsupportedError, Value, View

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_NEAR = 3
"""Token numbers to each side of a bound, and from 0 on, with which a node is run."""


def is_tokens(value: Value | None) -> bool:
    """Return whether the elements of a value are token numbers from the graph's input."""
    return isinstance(value, View) and isinstance(value.tensor, Input) and value.tensor.tokens


def token_mask(node: Node) -> Mask:
    """Return the mask of valid tokens that a node computes from token numbers.

    The node's result must be the same for all token numbers except one, which marks padding. Raises
    :class:`UnsupportedError` for other nodes, or if an earlier node marks padding by another
    number.
    """
    numbers = next(value for value in node.inputs if isinstance(value, View))
    known = next((value for value in node.inputs if value is not numbers), np.zeros(()))
    if not isinstance(known, np.ndarray) or known.size != 1 or not is_tokens(numbers):
        raise UnsupportedError("it compares something else than token numbers with one number")
    if numbers.function is not None:
        raise UnsupportedError("it compares a function of token numbers")
    bound = known.reshape(()).item()
    near = {*range(_NEAR + 1), *range(math.floor(bound) - _NEAR, math.floor(bound) + _NEAR + 1)}
    tried = np.array(sorted(number for number in near if number >= 0 or number == bound))
    operands = [tried.astype(known.dtype) if v is numbers else v for v in node.inputs]
    marks = node.fold(operands)[0].ravel().astype(bool)
    usual = 2 * int(marks.sum()) > len(marks)
    (missing,) = np.nonzero(marks != usual)
    if len(missing) != 1 or node.cache.padding not in (None, tried[missing[0]]):
        raise UnsupportedError("it does not compare token numbers with that of a missing token")
    node.cache.padding = int(tried[missing[0]])
    last = numbers.index == numbers.tensor.rows - 1
    return Mask(np.full(last.shape, usual), last != usual)
