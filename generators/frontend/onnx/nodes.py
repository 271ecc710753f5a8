"""The meaning of each kind of ONNX node, on the values of generators.frontend.onnx.values."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from arch.functions import gelu_erf, gelu_tanh, relu, sigmoid
from generators.frontend.onnx.attention import context, masked, scores, softmax
from generators.frontend.onnx.node import Node, whole
from generators.frontend.onnx.values import (
    Function,
    Index,
    Input,
    Linear,
    Lookup,
    Mask,
    Mean,
    Norm,
    Prepend,
    Scores,
    Shift,
    Sum,
    Tensor,
    UnsupportedError,
    Value,
    View,
)
from generators.frontend.weights import Floats

VIEWS = {
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}
"""Nodes that move elements and do not change them."""


def _erf(x: Floats) -> Floats:
    """Return the error function, by the normal distribution's: gelu_erf(x) is x * Phi(x)."""
    at = np.where(x == 0, 1.0, x) * np.sqrt(2)
    return np.where(x == 0, 0.0, 2 * gelu_erf(at) / at - 1)


UNARY: Mapping[str, Function] = {
    "Erf": _erf,
    "Exp": np.exp,
    "Neg": np.negative,
    "Relu": relu,
    "Sigmoid": sigmoid,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Div": np.divide,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}


def evaluate(node: Node) -> list[Value]:
    """Return a node's outputs.

    Raises :class:`UnsupportedError` where the node does what no description says.
    """
    given = [value for value in node.inputs if value is not None]
    if all(isinstance(value, np.ndarray) for value in given):
        return list(node.fold(node.inputs))
    if node.kind in ("Shape", "Size"):
        value = given[0]
        assert not isinstance(value, np.ndarray)
        shape = value.index.shape if isinstance(value, View) else value.full.shape
        return list(node.fold([np.zeros(shape, np.float32)]))
    if not any(isinstance(value, View) for value in given):
        return list(_mask(node))
    if node.kind == "Gather" and isinstance(node.inputs[0], np.ndarray):
        return [_lookup(node)]
    if node.kind in VIEWS:
        return list(_moved(node))
    if node.kind in ("Cast", "Dropout"):
        return given[:1]
    if node.kind in _KINDS:
        return [_KINDS[node.kind](node)]
    if node.kind in UNARY:
        value = given[0]
        assert isinstance(value, View)
        return [value.apply(UNARY[node.kind])]
    if node.kind in BINARY:
        return [_binary(node)]
    raise UnsupportedError("this kind of node is not known")


def _mask(node: Node) -> list[Mask]:
    """Follow the mask of keys, as numbers of two examples."""
    full = node.fold([v.full if isinstance(v, Mask) else v for v in node.inputs])
    cut = node.fold([v.cut if isinstance(v, Mask) else v for v in node.inputs])
    return [Mask(*pair) for pair in zip(full, cut, strict=True)]


def _moved(node: Node) -> list[View]:
    value = node.inputs[0]
    others = [v for v in node.inputs[1:] if v is not None]
    if not isinstance(value, View) or not all(isinstance(v, np.ndarray) for v in others):
        raise UnsupportedError("it moves data to places that are not known")
    return [
        replace(value, index=index.astype(np.int64))
        for index in node.fold([value.index, *node.inputs[1:]])
    ]


def _lookup(node: Node) -> View:
    numbers = node.inputs[1]
    if node.attribute("axis", 0) or not isinstance(numbers, View):
        raise UnsupportedError("it selects by data")
    source = numbers.tensor
    if not isinstance(source, Input) or not source.tokens or numbers.function is not None:
        raise UnsupportedError("it selects rows by numbers that are not the input's")
    table = node.constant(0)
    columns = table.shape[1]
    tensor = Lookup(node=node.name, rows=source.rows, columns=columns, source=source, table=table)
    return View(tensor, numbers.index[..., None] * columns + np.arange(columns))


def _concat(node: Node) -> View:
    first, second = (*node.inputs, None)[:2]
    if len(node.inputs) != 2 or not isinstance(first, np.ndarray) or not isinstance(second, View):
        raise UnsupportedError("it joins something else than a constant row and the tokens")
    second = node.made.settled(second)
    source = second.tensor
    _full(second)
    token = first.astype(np.float64).reshape(-1)
    if len(token) != source.columns or node.attribute("axis", 0) not in (1, -2):
        raise UnsupportedError("it joins something else than a constant row and the tokens")
    rows = source.rows + 1
    tensor = Prepend(node=node.name, rows=rows, columns=source.columns, source=source, row=token)
    return whole(tensor, (1, rows, source.columns))


def _full(view: View) -> Index:
    """Return the view's rows after checking that it holds all columns in their order."""
    rows, columns = view.layout()
    if not np.array_equal(columns, np.arange(view.tensor.columns)):
        raise UnsupportedError("it does not take all columns of its input, in their order")
    return rows


def _like(view: View, tensor: Tensor) -> View:
    """Return the view of the same tokens of another tensor."""
    rows = view.index[..., :1] // view.tensor.columns
    return View(tensor, rows * tensor.columns + np.arange(tensor.columns))


def _linear(node: Node, view: View, weight: Floats, bias: Floats) -> View:
    """Return a linear layer; ``weight`` is [inputs, outputs]."""
    if weight.ndim != 2:
        raise UnsupportedError("its weight is not a matrix")
    _, columns = view.layout()
    matrix = np.zeros((weight.shape[1], view.tensor.columns))
    matrix[:, columns] = weight.T
    tensor = Linear(
        node=node.name,
        rows=view.tensor.rows,
        columns=weight.shape[1],
        source=view.tensor,
        weight=matrix,
        bias=np.zeros(weight.shape[1]) + bias,
    )
    return _like(view, tensor)


def _matmul(node: Node) -> View:
    left, right = node.inputs
    if isinstance(right, np.ndarray):
        return _linear(node, node.view(0), node.constant(1), np.zeros(1))
    if not isinstance(left, View) or not isinstance(right, View):
        raise UnsupportedError("it does not multiply data by a constant or by data")
    if isinstance(left.tensor, Scores):
        return context(node, left, node.made.settled(right))
    return scores(node, left, right)


def _gemm(node: Node) -> View:
    view, weight = node.view(0), node.constant(1)
    bias = node.constant(2) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
    if node.attribute("transA", 0):
        raise UnsupportedError("it transposes the data")
    weight = weight.T if node.attribute("transB", 0) else weight
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    return _linear(node, view, alpha * weight, beta * bias)


def _layer_norm(node: Node) -> View:
    view = node.view(0)
    if node.attribute("axis", -1) not in (-1, view.index.ndim - 1):
        raise UnsupportedError("it normalizes more than the columns of a token")
    _full(view)
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    beta = node.constant(2) if given else np.zeros(view.tensor.columns)
    tensor = Norm(
        node=node.name,
        rows=view.tensor.rows,
        columns=view.tensor.columns,
        source=view.tensor,
        gamma=node.constant(1),
        beta=beta,
        # Of float32 values the shortest decimal that they stand for.
        epsilon=float(str(np.float32(node.attribute("epsilon", 1e-5)))),
        rms=node.kind != "LayerNormalization",
    )
    return View(tensor, view.index)


def _gelu(node: Node) -> View:
    value = node.inputs[0]
    assert isinstance(value, View)
    return value.apply(gelu_tanh if node.attribute("approximate", "none") == "tanh" else gelu_erf)


def _mean(node: Node) -> View:
    view = node.view(0)
    axes = node.inputs[1] if len(node.inputs) > 1 else node.attribute("axes", None)
    places = [int(axis) % view.index.ndim for axis in np.atleast_1d(np.asarray(axes))]
    rows = view.index // view.tensor.columns
    kept = np.take(view.index, [0], axis=places[0]) if len(places) == 1 else view.index
    order = np.moveaxis(rows, places[0], -1).reshape(-1, rows.shape[places[0]])
    if len(places) != 1 or np.any(order != np.arange(view.tensor.rows)):
        raise UnsupportedError("it is not a mean over all tokens")
    tensor = Mean(node=node.name, rows=1, columns=view.tensor.columns, source=view.tensor)
    index = kept % view.tensor.columns
    return View(tensor, index if node.attribute("keepdims", 1) else index.squeeze(places[0]))


def _where(node: Node) -> View:
    mask, kept, other = node.inputs
    if isinstance(kept, View) and isinstance(mask, Mask) and isinstance(other, np.ndarray):
        added = Mask(
            np.where(mask.full, 0.0, other).astype(np.float64),
            np.where(mask.cut, 0.0, other).astype(np.float64),
        )
        return masked(kept, added)
    raise UnsupportedError("it does not take masked keys out of scores")


def _binary(node: Node) -> View:
    left, right = node.inputs[:2]
    operation = BINARY[node.kind]
    if isinstance(left, Mask) or isinstance(right, Mask):
        view, mask = (left, right) if isinstance(left, View) else (right, left)
        if node.kind == "Add" and isinstance(view, View) and isinstance(mask, Mask):
            return masked(view, mask)
        raise UnsupportedError("a mask is not added to scores")
    if isinstance(left, View) and isinstance(right, View):
        return _of_two(node, left, right, operation)
    view, known = (left, right) if isinstance(left, View) else (right, left)
    assert isinstance(view, View)
    assert isinstance(known, np.ndarray)
    number = known.astype(np.float64)
    if number.size == 1:
        value = float(number.reshape(()))
        if view is left:
            return view.apply(lambda x: np.asarray(operation(x, value)))
        return view.apply(lambda x: np.asarray(operation(value, x)))
    if node.kind == "Div" and view is left:
        return _scaled(node.made.settled(view), 1 / number)
    if node.kind == "Mul":
        return _scaled(node.made.settled(view), number)
    if node.kind == "Add" or (node.kind == "Sub" and view is left):
        return _shifted(node, node.made.settled(view), number if node.kind == "Add" else -number)
    raise UnsupportedError("it combines data with constants in a way that is not known")


def _of_two(node: Node, left: View, right: View, operation: Callable[[Any, Any], Any]) -> View:
    if left.tensor is right.tensor and np.array_equal(left.index, right.index):
        first, second = (view.function or (lambda x: x) for view in (left, right))
        return replace(left, function=lambda x: np.asarray(operation(first(x), second(x))))
    left, right = node.made.settled(left), node.made.settled(right)
    same = left.tensor.columns == right.tensor.columns and left.tensor.rows == right.tensor.rows
    if node.kind != "Add" or not same or not np.array_equal(left.index, right.index):
        raise UnsupportedError("it combines data other than as the sum of two tensors")
    _full(left)
    tensor = Sum(
        node=node.name,
        rows=left.tensor.rows,
        columns=left.tensor.columns,
        left=left.tensor,
        right=right.tensor,
    )
    return View(tensor, left.index)


def _per_column(view: View, number: Floats) -> Floats | None:
    """Return a constant by the columns of the tensor; None where tokens differ in it."""
    spread = np.broadcast_to(number, view.index.shape).reshape(-1, view.index.shape[-1])
    _, columns = view.layout()
    if np.any(spread != spread[0]) or len(columns) != view.tensor.columns:
        return None
    found = np.zeros(view.tensor.columns)
    found[columns] = spread[0]
    return found


def _scaled(view: View, number: Floats) -> View:
    gains, tensor = _per_column(view, number), view.tensor
    if gains is not None and isinstance(tensor, Linear):
        weight = gains[:, None] * tensor.weight
        return View(replace(tensor, weight=weight, bias=gains * tensor.bias), view.index)
    if gains is not None and isinstance(tensor, Norm):
        scaled = replace(tensor, gamma=gains * tensor.gamma, beta=gains * tensor.beta)
        return View(scaled, view.index)
    raise UnsupportedError(
        "it multiplies by constants what neither a linear layer nor a norm gives"
    )


def _shifted(node: Node, view: View, number: Floats) -> View:
    shifts, tensor = _per_column(view, number), view.tensor
    if shifts is not None and isinstance(tensor, Linear):
        return View(replace(tensor, bias=tensor.bias + shifts), view.index)
    if shifts is not None and isinstance(tensor, Norm):
        return View(replace(tensor, beta=tensor.beta + shifts), view.index)
    rows = _full(view)
    if len(rows) != tensor.rows:
        raise UnsupportedError("it adds constants to some of the tokens")
    values = np.zeros((tensor.rows, tensor.columns))
    values[rows] = np.broadcast_to(number, view.index.shape).reshape(len(rows), -1)
    shifted = Shift(
        node=node.name, rows=tensor.rows, columns=tensor.columns, source=tensor, values=values
    )
    return View(shifted, view.index)


_KINDS: Mapping[str, Callable[[Node], View]] = {
    "Concat": _concat,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "RMSNormalization": _layer_norm,
    "ReduceMean": _mean,
    "Softmax": softmax,
    "Where": _where,
}
