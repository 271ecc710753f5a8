"""Gains and shifts of columns, which become a part of the weights of a layer.

A graph may multiply the columns of a tensor by gains and add shifts. If a linear layer or norm
computes the tensor, that layer's weights include the gains and shifts. Otherwise the result is an
:class:`Affine` (a tensor ``gains * source + shifts``), and a later linear layer's weights include
the gains and shifts.

The sum of an :class:`Affine` and a tensor ``other`` is computed as ``gains * (source + other /
gains) + shifts``. So this sum is also an :class:`Affine`.
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

    An :class:`Affine` is a tensor ``gains * source + shifts``. Its sum with a tensor ``other`` is
    computed as ``gains * (source + other / gains) + shifts``. To divide ``other`` by ``gains``, the
    importer divides the weights of the layer that computes ``other``.

    Raises :class:`UnsupportedError` if a gain is 0, or if ``other`` does not come from a layer
    whose weights can be divided.
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
    """Return an :class:`Affine` as a linear layer with a diagonal matrix."""
    return tensor.source.into(Linear, tensor.node, weight=np.diag(tensor.gains), bias=tensor.shifts)


def of_mean(node: str, tensor: Tensor) -> Tensor:
    """Return the mean over the rows of a tensor, as a tensor [1, columns]."""
    if isinstance(tensor, Affine):
        return affine(node, of_mean(node, tensor.source), tensor.gains, tensor.shifts)
    return tensor.into(Mean, node, rows=1)


def scaled(node: Node, view: View, number: Floats) -> View:
    """Return ``view * number``: the elements of a view, multiplied by a constant.

    A view has elements of a tensor in any arrangement. The constant may differ between columns of
    the tensor. Raises :class:`UnsupportedError` if the constant differs between rows (tokens), or
    if the view lacks a column of its tensor.
    """
    gains = per_column(view, number)
    if gains is None:
        raise UnsupportedError("it multiplies tokens by constants that differ from token to token")
    return View(affine(node.name, view.tensor, gains, np.zeros(1)), view.places)


def shifted(node: Node, view: View, number: Floats) -> View:
    """Return the sum of ``view`` and the constant ``number``, as a view of a new tensor.

    A view is an array of elements of a tensor [rows, columns], in any order and shape. ``number``
    is broadcast to the shape of the view, so each element of the view gets a number. The sum is
    supported in two cases:

    - All elements from the same tensor column get the same number, and the view has at least one
      element from each tensor column. The tensor is a :class:`Linear`, :class:`Norm`,
      :class:`Affine` or :class:`Sum`. The numbers are then added to the tensor as a bias [columns].
    - The view contains all rows of the tensor, and each row of the view is a complete tensor row
      with the columns in order. The numbers may differ from row to row, as position embeddings do.

    Raises :class:`UnsupportedError` in all other cases.
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
    """Return the result of a BatchNormalization node, expressed by gains and shifts of columns."""
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
    """Return a constant as an array [columns]: one number for each column of ``view.tensor``.

    A view is an array of elements of its tensor [rows, columns], in any order and shape. The
    constant ``number`` is broadcast to the shape of the view, so each element of the view gets a
    number. For example, if the view is a transposed tensor with 3 columns, and ``number`` is [[10],
    [20], [30]], the result is [10, 20, 30].

    The result is None in two cases:

    - Two elements from the same tensor column get different numbers.
    - The view has no element from one of the tensor columns.
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
