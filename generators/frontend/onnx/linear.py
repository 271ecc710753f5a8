"""ONNX nodes that multiply data by constants: MatMul, Gemm, Conv and Einsum."""

from dataclasses import replace

import numpy as np

from celosia.generators.frontend.host_steps import window_indices
from celosia.generators.frontend.onnx.attention import context, pooling_scores, scores
from celosia.generators.frontend.onnx.node import Node, same_rows
from celosia.generators.frontend.onnx.values import (
    Affine,
    Input,
    Linear,
    Patches,
    Scores,
    UnsupportedError,
    View,
)
from celosia.generators.frontend.weights import Floats


def linear(node: Node, view: View, weight: Floats, bias: Floats) -> View:
    """Return the output of a linear layer, ``view @ weight + bias``, as a :class:`View`.

    ``weight`` is [inputs, outputs]; ``bias`` is [outputs] or one number. Raises
    :class:`UnsupportedError` if ``weight`` is no matrix, or if the last axis of ``view`` has
    elements of several tokens.
    """
    if weight.ndim != 2:
        raise UnsupportedError("its weight is not a matrix")
    if isinstance(view.tensor, Input) and not view.tensor.tokens:
        view = _patched(node, view)
    if view.index.ndim > 1 and _across(view):
        raise UnsupportedError("it multiplies across tokens")
    _, columns = view.layout()
    matrix = np.zeros((weight.shape[1], view.tensor.columns))
    matrix[:, columns] = weight.T
    outputs, source = weight.shape[1], view.tensor
    bias = np.zeros(outputs) + bias
    if isinstance(source, Affine):
        bias, matrix = bias + matrix @ source.shifts, matrix * source.gains
        source = source.source
    made = source.into(Linear, node.name, columns=outputs, weight=matrix, bias=bias)
    return same_rows(view, made)


def _across(view: View) -> bool:
    """Return whether the last axis of a view holds one column of all tokens."""
    tokens = view.tensor.rows
    if view.shape[-1] != tokens or tokens == 1 or view.index[..., 0].size == 1:
        return False
    rows, columns = np.divmod(view.index, view.tensor.columns)
    return bool(np.all(rows == np.arange(tokens)) and np.all(columns == columns[..., :1]))


def _patched(node: Node, view: View) -> View:
    """Return a view of the input whose last axis holds the columns of rows, cut if necessary."""
    tensor, width = view.tensor, view.shape[-1]
    places = view.index.reshape(-1, width)
    if places.shape == (tensor.rows, tensor.columns) and np.array_equal(
        places.ravel(), np.arange(places.size)
    ):
        return view
    made = tensor.into(Patches, node.name, rows=len(places), columns=width, places=places)
    return View(made, np.arange(places.size).reshape(view.shape))


def matmul(node: Node) -> View:
    """Return a view of a MatMul node's result: a linear layer, or a product of attention.

    - Constant right operand: the result is the output of a linear layer.
    - Constant left operand: the result is scores of a pooling by attention.
    - Attention scores on the left: the result is the values, weighted by the scores.
    - Two operands of other data: the result is attention scores.

    Raises :class:`UnsupportedError` for any other product.
    """
    left, right = node.inputs
    if isinstance(right, np.ndarray):
        return linear(node, node.view(0), node.constant(1), np.zeros(1))
    if isinstance(left, np.ndarray) and isinstance(right, View) and min(left.ndim, 2) == 2:
        return pooling_scores(node, left.shape, right)
    if not isinstance(left, View) or not isinstance(right, View):
        raise UnsupportedError("it does not multiply data by a constant or by data")
    if isinstance(left.tensor, Scores):
        return context(node, left, node.cache.without_function(right))
    return scores(node, left, right)


def gemm(node: Node) -> View:
    """Return a :class:`View` of a Gemm's result, the output of a linear layer with a bias."""
    view, weight, bias = node.view(0), node.constant(1), node.constant(2, np.zeros(1))
    if node.attribute("transA", 0):
        raise UnsupportedError("it transposes the data")
    weight = weight.T if node.attribute("transB", 0) else weight
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    return linear(node, view, alpha * weight, beta * bias)


def conv(node: Node) -> View:
    """Return a view of a Conv node's result: a linear layer over windows of the graph's input.

    Raises :class:`UnsupportedError` if the node's operand is not the graph's input, if the
    convolution is grouped, or if ``auto_pad`` computes its padding.
    """
    view, weight = node.view(0), node.constant(1)
    if not isinstance(view.tensor, Input) or view.shape[0] != 1:
        raise UnsupportedError("it is a convolution of something else than the input")
    if node.attribute("group", 1) != 1 or node.attribute("auto_pad", "NOTSET") not in (
        "NOTSET",
        "VALID",
    ):
        raise UnsupportedError("it is a convolution in groups, or padded by a rule")
    axes = weight.ndim - 2
    pads = list(node.attribute("pads", [0] * (2 * axes)))
    seen = window_indices(
        view.shape[1:],
        weight.shape[2:],
        node.attribute("strides", [1] * axes),
        pads[:axes],
        pads[axes:],
        node.attribute("dilations", [1] * axes),
    )  # [*windows, channels, *kernel]
    places = seen.reshape(int(np.prod(seen.shape[:axes])), -1)
    places = np.where(places < 0, -1, view.index.ravel()[places])
    rows, columns = places.shape
    made = view.tensor.into(Patches, node.name, rows=rows, columns=columns, places=places)
    bias = node.constant(2, np.zeros(1))
    patches = View(made, np.arange(places.size).reshape(*seen.shape[:axes], -1))
    product = linear(node, patches, weight.reshape(len(weight), -1).T, bias)
    return replace(product, places=np.moveaxis(product.index, -1, 0)[None])


def einsum(node: Node) -> View:
    """Return a view of an Einsum node's result: a linear layer, or a product of attention.

    - If an operand is constant: the output of a linear layer.
    - If an operand is attention scores: the values, weighted by the scores.
    - If both operands are other data: attention scores.

    Raises :class:`UnsupportedError` for any other equation.
    """
    equation = str(node.attribute("equation", "")).replace(" ", "")
    terms, _, target = equation.partition("->")
    names = terms.split(",")
    if len(names) != 2 or not target or "." in equation:
        raise UnsupportedError(f"its equation {equation!r} is not that of two operands")
    left, right = node.inputs[:2]
    if not isinstance(left, View):
        names, left, right = names[::-1], right, left
    if not isinstance(left, View) or any(len(set(letters)) != len(letters) for letters in names):
        raise UnsupportedError(f"its equation {equation!r} is not that of two operands")
    a, b = names
    summed = [letter for letter in a if letter in b and letter not in target]
    alike = [letter for letter in a if letter in b and letter in target]
    own = [letter for letter in a if letter not in b]
    other = [letter for letter in b if letter not in a]
    if set(target) != {*alike, *own, *other}:
        raise UnsupportedError(f"its equation {equation!r} sums an operand alone")
    if isinstance(right, np.ndarray):
        if alike:
            raise UnsupportedError(f"its equation {equation!r} has different weights for rows")
        elements = node.cache.without_function(left)
        index = elements.index.transpose([a.index(letter) for letter in (*own, *summed)])
        lead = index.shape[: len(own)]
        weight = right.astype(np.float64).transpose(
            [b.index(letter) for letter in (*summed, *other)]
        )
        ends = weight.shape[len(summed) :]
        matrix = weight.reshape(-1, int(np.prod(ends)))
        product = linear(node, View(elements.tensor, index.reshape(*lead, -1)), matrix, np.zeros(1))
        made, order = product.index.reshape(*lead, *ends), [*own, *other]
        return View(product.tensor, made.transpose([order.index(letter) for letter in target]))
    if not isinstance(right, View) or len(summed) != 1 or len(own) != 1 or len(other) != 1:
        raise UnsupportedError(f"its equation {equation!r} is none of attention")
    if isinstance(right.tensor, Scores):
        left, right, a, b, own, other = right, left, b, a, other, own
    first = left.index.transpose([a.index(letter) for letter in (*alike, *own, *summed)])
    second = right.index.transpose([b.index(letter) for letter in (*alike, *summed, *other)])
    pair = replace(left, places=first), replace(right, places=second)
    if isinstance(left.tensor, Scores):
        product = context(node, pair[0], node.cache.without_function(pair[1]))
    else:
        product = scores(node, *pair)
    order = [*alike, *own, *other]
    return replace(
        product, places=product.index.transpose([order.index(letter) for letter in target])
    )
