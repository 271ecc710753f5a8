"""Norms and pooling in ONNX graphs, each as a single node or as several simpler nodes."""

import numpy as np

from celosia.generators.frontend.onnx.affine import of_mean
from celosia.generators.frontend.onnx.node import Node, full_rows
from celosia.generators.frontend.onnx.values import (
    Centred,
    Index,
    Mask,
    Norm,
    RowMean,
    Tensor,
    UnsupportedError,
    View,
    ZeroedPadding,
)

_POINTS = np.array([0.0, 1e-3, 0.25, 1.0, 4.0, 30.0])
_NEAR = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
"""Variances at which a norm's scale is compared as well, as multiples of its epsilon."""
_SQUARE = np.linspace(-3.0, 3.0, 25)


def layer_norm(node: Node) -> View:
    """Return the norm that a single ONNX node computes, such as LayerNormalization."""
    view = node.view(0)
    if node.attribute("axis", -1) not in (-1, len(view.shape) - 1):
        raise UnsupportedError("it normalizes more than the columns of a token")
    full_rows(view)
    columns = view.tensor.columns
    tensor = view.tensor.into(
        Norm,
        node.name,
        gamma=np.broadcast_to(node.constant(1), columns),
        beta=np.broadcast_to(node.constant(2, np.zeros(1)), columns),
        epsilon=_epsilon(_shortest(node.attribute("epsilon", 1e-5))),
        rms=node.kind != "LayerNormalization",
    )
    return View(tensor, view.index)


def mean(node: Node) -> View:
    """Return the result of ReduceMean: the mean over each token's columns, or over all tokens."""
    value = node.inputs[0]
    assert isinstance(value, View)
    axes = axes_of(node, value)
    if axes == [len(value.shape) - 1]:
        return _row_mean(node, value)
    view = node.view(0)
    kept = _over_tokens(view, axes, "it is not a mean over all tokens")
    return _pooled(node, of_mean(node.name, view.tensor), kept, axes[0])


def pooled_mean(node: Node) -> View:
    """Return the result of GlobalAveragePool on a 3-D input: the mean of each token's columns."""
    value = node.inputs[0]
    assert isinstance(value, View)
    if len(value.shape) != 3:
        raise UnsupportedError("it is the mean of more than the columns of a token")
    return _row_mean(node, value)


def sum_over_tokens(node: Node) -> View:
    """Return the result of a ReduceSum node: the sum of the rows of all valid tokens.

    The node's input must be a :class:`ZeroedPadding` tensor: the rows of padding tokens are zero.
    Raises :class:`UnsupportedError` if the input is another tensor, or if the node does not sum
    over the axis of the tokens.
    """
    view, axes = node.view(0), axes_of(node, node.inputs[0])
    if not isinstance(view.tensor, ZeroedPadding):
        raise UnsupportedError("it is not a sum over the tokens that are there")
    kept = _over_tokens(view, axes, "it is not a sum over all tokens")
    tensor = view.tensor.source.into(ZeroedPadding, node.name, rows=1, summed=True)
    return _pooled(node, tensor, kept, axes[0])


def zeroed_padding(node: Node, view: View, mask: Mask) -> View:
    """Return ``view`` times ``mask``: a copy in which the rows of padding tokens are zero.

    Raises :class:`UnsupportedError` if ``mask`` is not 1 for valid tokens and 0 for padding tokens.
    """
    full, cut = (np.broadcast_to(v, view.shape) for v in (mask.full, mask.cut))
    rows = view.index // view.tensor.columns
    there = rows != view.tensor.rows - 1
    if np.any(full != 1) or np.any(cut != there):
        raise UnsupportedError("a mask is applied to something else than scores or rows")
    return View(view.tensor.into(ZeroedPadding, node.name), view.index)


def shared_mean(node: Node, view: View, mask: Mask) -> View:
    """Return the view of a mean over all valid tokens, for a division node of a graph.

    The node must divide the sum of the valid tokens' rows (``view``) by the number of valid tokens
    (``mask``, as a function of the input's padding). Otherwise, :class:`UnsupportedError` is
    raised.
    """
    tensor = view.tensor
    assert isinstance(tensor, ZeroedPadding)
    rows = tensor.source.rows
    if not tensor.summed or np.any(mask.full != rows) or np.any(mask.cut != rows - 1):
        raise UnsupportedError("it divides by something else than the number of tokens")
    return View(of_mean(node.name, tensor.source), view.places)


def centred(node: Node, left: View, right: View) -> View:
    """Return a tensor minus the mean of each row, which is the first step of a LayerNorm."""
    stat = right.tensor
    assert isinstance(stat, RowMean)
    if stat.squares or stat.source is not left.tensor or right.function is not None:
        raise UnsupportedError("it subtracts another tensor's mean")
    full_rows(left)
    return View(left.tensor.into(Centred, node.name), left.index)


def normalized(node: Node, view: View, by: View, *, multiply: bool) -> View:
    """Return the norm that a graph computes by scaling each row of ``view``.

    - If ``multiply`` is true, ``by`` must be the factor ``1 / sqrt(m + epsilon)`` of each row.
    - Otherwise ``by`` must be the divisor ``sqrt(m + epsilon)`` of each row.

    Here ``m`` is the mean of the squares in the row. Raises :class:`UnsupportedError` if ``by`` is
    anything else.
    """
    stat = by.tensor
    assert isinstance(stat, RowMean)
    source = view.tensor
    if not stat.squares or stat.source is not source:
        raise UnsupportedError("it scales rows by something else than their own variance")
    epsilon = epsilon_of(by, multiply=multiply)
    rms = not isinstance(source, Centred)
    inner = source.source if isinstance(source, Centred) else source
    tensor = inner.into(
        Norm,
        node.name,
        gamma=np.ones(source.columns),
        beta=np.zeros(source.columns),
        epsilon=epsilon,
        rms=rms,
    )
    return View(tensor, view.index)


def epsilon_of(by: View, *, multiply: bool) -> float:
    """Return the constant epsilon that a norm adds to the variance of each row.

    - If ``multiply`` is true, ``by`` must be ``1 / sqrt(variance + epsilon)`` of each row.
    - Otherwise ``by`` must be ``sqrt(variance + epsilon)`` of each row.

    Raises :class:`UnsupportedError` if ``by`` is anything else, or epsilon is not positive.
    """
    if by.function is None:
        raise UnsupportedError("it scales rows by something else than their own variance")
    inverse = -1.0 if multiply else 1.0
    with np.errstate(all="ignore"):
        epsilon = float(by.function(_POINTS)[0] ** (2 * inverse))
        points = np.append(_POINTS, epsilon * _NEAR)
        root = by.function(points) ** inverse
    if not np.allclose(root, np.sqrt(points + epsilon), rtol=1e-4, atol=0.0):
        raise UnsupportedError("it scales rows by something else than the root of their variance")
    return _epsilon(_shortest(epsilon))


def _shortest(value: float) -> float:
    """Return the shortest decimal number with the same float32 as ``value``."""
    return float(str(np.float32(value)))


def _epsilon(value: float) -> float:
    if not value > 0:
        raise UnsupportedError(
            f"its epsilon is {value}, with which rows of one number have no norm"
        )
    return value


def _row_mean(node: Node, value: View) -> View:
    squares = value.function is not None
    if value.function is not None and not np.allclose(value.function(_SQUARE), _SQUARE**2):
        raise UnsupportedError("it is the mean of something else than rows or their squares")
    view = View(value.tensor, value.index)
    full_rows(view)
    source = view.tensor
    tensor = source.into(RowMean, node.name, columns=1, squares=squares)
    if isinstance(source, Norm | Centred) and not squares:
        raise UnsupportedError("it is the mean of rows that are normalized already")
    index = view.index[..., :1] // source.columns
    return View(tensor, index if node.attribute("keepdims", 1) else index[..., 0])


def axes_of(node: Node, value: object) -> list[int]:
    """Return a list of the indices, from 0, of the axes of ``value`` that a node reduces.

    Raises :class:`UnsupportedError` if the axes are not constant.
    """
    assert isinstance(value, View)
    axes = node.inputs[1] if len(node.inputs) > 1 else node.attribute("axes", None)
    if axes is None or not isinstance(axes, np.ndarray | list | tuple):
        raise UnsupportedError("it reduces axes that are not known")
    return [int(axis) % len(value.shape) for axis in np.atleast_1d(np.asarray(axes))]


def _over_tokens(view: View, axes: list[int], message: str) -> Index:
    """Return the index of the first token's columns after a check that all tokens are reduced."""
    if len(axes) != 1:
        raise UnsupportedError(message)
    rows = view.index // view.tensor.columns
    kept = np.take(view.index, [0], axis=axes[0])
    order = np.moveaxis(rows, axes[0], -1).reshape(-1, rows.shape[axes[0]])
    every = order.shape[1] == view.tensor.rows
    if not every or np.any(order != np.arange(view.tensor.rows)):
        raise UnsupportedError(message)
    return kept


def _pooled(node: Node, tensor: Tensor, kept: Index, axis: int) -> View:
    index = kept % tensor.columns
    return View(tensor, index if node.attribute("keepdims", 1) else index.squeeze(axis))
