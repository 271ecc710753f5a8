"""LayerNorms in Keras' form, ``x * s + (beta - mean * s)``, in ONNX graphs.

The scale ``s`` is ``gamma / sqrt(variance + epsilon)``; the mean and the variance are those of each
row of ``x``. A :class:`NormTerm` represents a term, and the sum of all terms is a :class:`Norm`.
"""

from dataclasses import replace

import numpy as np

from celosia.generators.frontend.onnx.affine import per_column
from celosia.generators.frontend.onnx.node import Node, whole
from celosia.generators.frontend.onnx.norms import epsilon_of
from celosia.generators.frontend.onnx.values import (
    Centred,
    Norm,
    NormTerm,
    RowMean,
    UnsupportedError,
    View,
)
from celosia.generators.frontend.weights import Floats


def is_deviation(view: object) -> bool:
    """Return whether a value is a :class:`View` [..., 1] of the variances of a tensor's rows.

    A function of the variances, such as ``1 / sqrt(variance + epsilon)``, is accepted too.
    """
    if not isinstance(view, View) or not isinstance(view.tensor, RowMean):
        return False
    return view.tensor.squares and isinstance(view.tensor.source, Centred)


def scale_term(node: Node, view: View, gamma: Floats) -> View:
    """Return the scale ``gamma / sqrt(variance + epsilon)`` of a LayerNorm, [..., columns].

    ``view`` [..., 1] is ``1 / sqrt(variance + epsilon)`` of each row, and ``gamma`` is [columns] or
    one number. Raises :class:`UnsupportedError` if ``view`` or ``gamma`` is anything else.
    """
    stat = view.tensor
    assert isinstance(stat, RowMean)
    assert isinstance(stat.source, Centred)
    if not view.ordered or gamma.size not in (1, gamma.shape[-1] if gamma.ndim else 1):
        raise UnsupportedError("it scales rows other than by columns")
    source = stat.source.source
    tensor = source.into(
        NormTerm,
        node.name,
        epsilon=epsilon_of(view, multiply=True),
        gamma=np.broadcast_to(gamma.reshape(-1), source.columns),
        beta=np.zeros(source.columns),
        parts=(0.0, 0.0, 1.0),
    )
    return whole(tensor, (*view.shape[:-1], source.columns))


def norm_term_product(node: Node, left: View, right: View) -> View:
    """Return a LayerNorm's scale times the LayerNorm's input, or times the input's row means.

    The scale is ``gamma / sqrt(variance + epsilon)``. ``left`` and ``right`` are the factors, in
    any order. The result is [..., columns]. Raises :class:`UnsupportedError` if the factors are
    anything else.
    """
    view, by = (right, left) if isinstance(left.tensor, NormTerm) else (left, right)
    if is_deviation(by):
        by = scale_term(node, by, np.ones(1))
    factor, tensor, own = view.factor(), by.tensor, view.tensor
    assert isinstance(tensor, NormTerm)
    alone = tensor.parts == (0.0, 0.0, 1.0) and not tensor.beta.any()
    mean = isinstance(own, RowMean) and not own.squares and own.source is tensor.source
    if factor is None or not alone or not view.ordered or not (mean or own is tensor.source):
        raise UnsupportedError("it scales rows by another one's variance")
    parts = (0.0, factor, 0.0) if mean else (factor, 0.0, 0.0)
    return whole(replace(tensor, node=node.name, parts=parts), by.shape)


def norm_term_sum(node: Node, left: View, right: View) -> View:
    """Return the LayerNorm that is the sum or the difference of the terms ``left`` and ``right``.

    The terms are, for example, ``x * s`` and ``beta - mean * s``, where ``s`` is
    ``gamma / sqrt(variance + epsilon)``. Raises :class:`UnsupportedError` if the result is not a
    complete LayerNorm of ``x``.
    """
    first, other = left.tensor, right.tensor
    assert isinstance(first, NormTerm)
    assert isinstance(other, NormTerm)
    alike = first.source is other.source and first.epsilon == other.epsilon
    if not alike or not np.array_equal(first.gamma, other.gamma):
        raise UnsupportedError("it adds parts of different norms")
    sign = -1.0 if node.kind == "Sub" else 1.0
    parts = tuple(a + sign * b for a, b in zip(first.parts, other.parts, strict=True))
    beta = first.beta + sign * other.beta
    if not np.allclose(parts, (1.0, -1.0, 0.0)):
        raise UnsupportedError("it adds parts that are no whole norm")
    made = first.source.into(
        Norm, node.name, gamma=first.gamma, beta=beta, epsilon=first.epsilon, rms=False
    )
    return whole(made, left.shape)


def norm_term_shift(node: Node, view: View, number: Floats) -> View:
    """Return a LayerNorm's term plus or minus a constant, for example ``beta - mean * s``.

    In this example, ``number`` is ``beta``, ``view`` is ``mean * s``, and the scale ``s`` is
    ``gamma / sqrt(variance + epsilon)``. Raises :class:`UnsupportedError` if ``number`` differs
    between tokens, or if ``view`` lacks a column of its tensor.
    """
    tensor = view.tensor
    assert isinstance(tensor, NormTerm)
    columns = per_column(view, number)
    if columns is None:
        raise UnsupportedError("it adds constants to some of the tokens")
    sign = -1.0 if node.kind == "Sub" else 1.0
    own, added = (1.0, sign) if view is node.inputs[0] else (sign, 1.0)
    parts = tuple(own * part for part in tensor.parts)
    beta = own * tensor.beta + added * columns
    return View(replace(tensor, node=node.name, parts=parts, beta=beta), view.places)
