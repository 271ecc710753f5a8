"""Gains and shifts of a tensor's columns in ONNX graphs.

The importer includes gains and shifts in the weights of an adjacent linear layer or norm.
"""

from dataclasses import replace

import numpy as np

from celosia.generators.frontend.onnx.node import Node, full_rows
from celosia.generators.frontend.onnx.values import (
    Affine,
    Linear,
    Mean,
    Norm,
    Shift,
    Sum,
    Tensor,
    UnsupportedError,
    View,
)
from celosia.generators.frontend.weights import Floats


def affine(node: str, tensor: Tensor, gains: Floats, shifts: Floats) -> Tensor:
    """Return ``gains * tensor + shifts``; gains and shifts are [columns].

    If a linear layer or norm computes the tensor, gains and shifts become a part of that layer's
    weights. For other tensors the result is an :class:`Affine`.
    """
    if isinstance(tensor, Linear):
        return replace(
            tensor, weight=gains[:, None] * tensor.weight, bias=gains * tensor.bias + shifts
        )
    if isinstance(tensor, Norm):
        return replace(tensor, gamma=gains * tensor.gamma, beta=gains * tensor.beta + shifts)
    if isinstance(tensor, Affine):
        gains, shifts = gains * tensor.gains, gains * tensor.shifts + shifts
        tensor = tensor.source
    return tensor.into(Affine, node, gains=gains, shifts=shifts)


def added(node: str, left: Tensor, right: Tensor) -> Tensor:
    """Return the sum of two tensors; one of them may be an :class:`Affine`.

    If one is an :class:`Affine` (``gains * source + shifts``), the weights of the other tensor's
    layer are divided by the gains. Raises :class:`UnsupportedError` if a gain is 0, or if the other
    tensor is not the output of a linear layer or norm.
    """
    for tensor, other in ((left, right), (right, left)):
        if isinstance(tensor, Affine) and np.all(tensor.gains):
            inner = affine(node, other, 1 / tensor.gains, np.zeros(1))
            if not isinstance(inner, Affine):
                below = added(node, tensor.source, inner)
                return affine(node, below, tensor.gains, tensor.shifts)
    if isinstance(left, Affine) or isinstance(right, Affine):
        raise UnsupportedError("it adds to a batch normalization a tensor without a linear layer")
    return Sum(node=node, rows=left.rows, columns=left.columns, left=left, right=right)


def as_linear(tensor: Affine) -> Linear:
    """Return an :class:`Affine` (``gains * source + shifts``) as a linear layer."""
    return tensor.source.into(Linear, tensor.node, weight=np.diag(tensor.gains), bias=tensor.shifts)


def of_mean(node: str, tensor: Tensor) -> Tensor:
    """Return the mean over the rows of a tensor, as a tensor [1, columns]."""
    if isinstance(tensor, Affine):
        return affine(node, of_mean(node, tensor.source), tensor.gains, tensor.shifts)
    return tensor.into(Mean, node, rows=1)


def scaled(node: Node, view: View, number: Floats) -> View:
    """Return ``view * number``, for a constant ``number`` that may differ from column to column.

    ``view`` has elements of a tensor [tokens, columns]. Raises :class:`UnsupportedError` if
    ``number`` differs between tokens, or if ``view`` lacks a column of the tensor.
    """
    gains = per_column(view, number)
    if gains is None:
        raise UnsupportedError("it multiplies tokens by constants that differ from token to token")
    return View(affine(node.name, view.tensor, gains, np.zeros(1)), view.places)


def shifted(node: Node, view: View, number: Floats) -> View:
    """Return ``view + number``, for a constant that is a bias or has a row for each token.

    ``view`` has elements of a tensor [tokens, columns], and ``number`` is broadcast to the shape of
    ``view``. Raises :class:`UnsupportedError` if ``number`` differs between tokens, and ``view``
    does not contain the complete rows of all tokens.
    """
    shifts, tensor = per_column(view, number), view.tensor
    if shifts is not None and isinstance(tensor, Linear | Norm | Affine | Sum):
        return View(affine(node.name, tensor, np.ones(tensor.columns), shifts), view.places)
    rows = full_rows(view)
    if len(rows) != tensor.rows:
        raise UnsupportedError("it adds constants to some of the tokens")
    values = np.zeros((tensor.rows, tensor.columns))
    values[rows] = np.broadcast_to(number, view.shape).reshape(len(rows), -1)
    if isinstance(tensor, Affine) and np.all(tensor.gains):
        below = tensor.source.into(Shift, node.name, values=values / tensor.gains)
        return View(affine(node.name, below, tensor.gains, tensor.shifts), view.places)
    return View(tensor.into(Shift, node.name, values=values), view.places)


def batch_norm(node: Node) -> View:
    """Return a view of a BatchNormalization node's result: columns times gains, plus shifts."""
    view = node.view(0)
    gamma, beta, mean, variance = (node.constant(place) for place in range(1, 5))
    spread = variance + node.attribute("epsilon", 1e-5)
    if not np.all(spread > 0):
        raise UnsupportedError("a variance of its columns is not positive")
    gains = gamma / np.sqrt(spread)
    shape = [1, -1, *[1] * (len(view.shape) - 2)]
    columns = per_column(view, gains.reshape(shape))
    shifts = per_column(view, (beta - mean * gains).reshape(shape))
    if columns is None or shifts is None:
        raise UnsupportedError("it normalizes something else than the columns of all tokens")
    return View(affine(node.name, view.tensor, columns, shifts), view.places)


def per_column(view: View, number: Floats) -> Floats | None:
    """Return a constant as one number for each column of a view's tensor, [columns].

    The constant ``number`` is broadcast to ``view``. For example, [[10], [20]] for a transposed
    tensor of 2 columns becomes [10, 20]. The result is None if two elements of one column get
    different numbers, or if the view lacks a column.
    """
    columns = view.tensor.columns
    by_column = np.full(columns, np.nan)
    places = view.index.ravel() % columns
    spread = np.broadcast_to(number, view.shape).ravel()
    by_column[places] = spread
    return (
        by_column
        if np.array_equal(by_column[places], spread) and not np.isnan(by_column).any()
        else None
    )
