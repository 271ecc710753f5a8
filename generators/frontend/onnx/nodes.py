"""Recognition of the operation that an ONNX node computes, by the node's type and its inputs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.functions import gelu_erf, gelu_tanh
from celosia.generators.frontend.onnx.affine import added, batch_norm, scaled, shifted
from celosia.generators.frontend.onnx.attention import masked, softmax
from celosia.generators.frontend.onnx.functions import BINARY, PARAMETRIC, UNARY, VARIADIC
from celosia.generators.frontend.onnx.linear import conv, einsum, gemm, matmul
from celosia.generators.frontend.onnx.moments import (
    is_deviation,
    norm_term_product,
    norm_term_shift,
    norm_term_sum,
    scale_term,
)
from celosia.generators.frontend.onnx.node import Node, full_rows, whole
from celosia.generators.frontend.onnx.norms import (
    axes_of,
    centred,
    layer_norm,
    mean,
    normalized,
    pooled_mean,
    shared_mean,
    sum_over_tokens,
    zeroed_padding,
)
from celosia.generators.frontend.onnx.token_masks import COMPARISONS, is_tokens, token_mask
from celosia.generators.frontend.onnx.values import (
    Centred,
    Largest,
    Lookup,
    Mask,
    NormTerm,
    Prepend,
    RowMean,
    Scores,
    UnsupportedError,
    Value,
    View,
    ZeroedPadding,
)

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
_SHAPED = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
"""Nodes that do not change the order of elements."""
_FLOATS = (1, 10, 11, 16)
"""ONNX's numbers of the kinds of floating point elements."""
_WIDE = (1, 6, 7, 11, 12, 13)
"""ONNX's numbers of the kinds of elements that hold any token number."""
_BOOL = 9


def symbolic_outputs(node: Node) -> list[Value]:
    """Return a list of the outputs of an ONNX node.

    - An array is an output that does not depend on the model's input.
    - A :class:`View` contains elements of a tensor that depends on the model's input.
    - A :class:`Mask` is an output that depends only on which tokens are padding.

    Raises :class:`UnsupportedError` for an unknown operation.
    """
    operands = [value for value in node.inputs if value is not None]
    if all(isinstance(value, np.ndarray) for value in operands):
        return list(node.fold(node.inputs))
    if node.kind in ("Shape", "Size"):
        return list(node.fold([np.zeros(_shape(operands[0]), np.float32)]))
    if not any(isinstance(value, View) for value in operands):
        return list(_mask(node))
    if node.kind == "IsNaN":
        # Of finite inputs, a softmax over at least one key is no NaN.
        return [np.zeros(_shape(operands[0]), bool)]
    if node.kind == "ReduceMax" and _are_scores(operands[0]):
        return [_largest(node)]
    if node.kind in COMPARISONS:
        return [_compared(node)]
    if node.kind == "Gather" and isinstance(node.inputs[0], np.ndarray):
        return [_lookup(node)]
    if node.kind in VIEWS:
        return list(_moved(node))
    if node.kind in ("Cast", "CastLike", "Dropout"):
        return [_same(node)]
    if node.kind in _KINDS:
        return [_KINDS[node.kind](node)]
    if node.kind in UNARY or node.kind in PARAMETRIC:
        value = operands[0]
        assert isinstance(value, View)
        if node.kind in UNARY:
            return [value.apply(UNARY[node.kind])]
        return [value.apply(PARAMETRIC[node.kind](node))]
    if node.kind in VARIADIC:
        return [_of_all(node)]
    if node.kind in BINARY:
        return [_binary(node)]
    raise UnsupportedError("this kind of node is not known")


def _shape(value: Value) -> tuple[int, ...]:
    if isinstance(value, View):
        return value.shape
    return value.full.shape if isinstance(value, Mask) else value.shape


def _are_scores(value: Value | None) -> bool:
    return isinstance(value, View) and isinstance(value.tensor, Scores)


def _largest(node: Node) -> View:
    """Return the largest score of each row."""
    value = node.inputs[0]
    assert isinstance(value, View)
    axes = axes_of(node, value)
    if axes != [len(value.shape) - 1] or not node.attribute("keepdims", 1) or not value.ordered:
        raise UnsupportedError("it is not the largest score of each row")
    return whole(value.tensor.into(Largest, node.name, columns=1), (*value.shape[:-1], 1))


def _compared(node: Node) -> Value:
    """Return a mask of the rows of scores without a key, or of the tokens that stand for none."""
    left, right = node.inputs[:2]
    view, known = (left, right) if isinstance(left, View) else (right, left)
    if isinstance(view, View) and isinstance(view.tensor, Largest):
        if node.kind == "Equal" and isinstance(known, np.ndarray) and np.all(known == -np.inf):
            # Of finite inputs, each row has a key whose score is finite.
            return np.zeros(view.shape, bool)
        raise UnsupportedError("it compares scores with something else than minus infinity")
    return token_mask(node)


def _same(node: Node) -> Value:
    """Return the first input unchanged, or the mask of tokens that are made truth values.

    Other kinds of floating-point numbers do not alter data, nor do kinds of at least 32 bits alter
    token numbers.
    """
    value = node.inputs[0]
    if not isinstance(value, View):
        if node.kind == "CastLike" and isinstance(value, np.ndarray):
            return value.astype(np.float32)
        raise UnsupportedError("it makes a mask or a constant like something else")
    kind, tokens = node.attribute("to", 1), is_tokens(value)
    if tokens and kind == _BOOL:
        return token_mask(node)
    if kind not in (_WIDE if tokens else _FLOATS):
        raise UnsupportedError("it makes other numbers of data")
    return value


def _of_all(node: Node) -> Value:
    """Return a function of any number of operands, applied to two at a time."""
    kind = VARIADIC[node.kind]
    total, *others = node.inputs
    for operand in others:
        if isinstance(total, np.ndarray) and isinstance(operand, np.ndarray):
            total = np.asarray(BINARY[kind](total, operand))
        else:
            total = _binary(replace(node, kind=kind, inputs=[total, operand]))
    assert total is not None
    return total


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
    if value.ordered and node.kind in _SHAPED:
        shape = node.fold([np.zeros(value.shape, np.int8), *node.inputs[1:]])[0].shape
        return [replace(value, places=shape)]
    return [
        replace(value, places=index.astype(np.int64))
        for index in node.fold([value.index, *node.inputs[1:]])
    ]


def _lookup(node: Node) -> View:
    numbers = node.inputs[1]
    if node.attribute("axis", 0) or not isinstance(numbers, View):
        raise UnsupportedError("it selects by data")
    source = numbers.tensor
    if not is_tokens(numbers) or numbers.function is not None:
        raise UnsupportedError("it selects rows by numbers that are not the input's")
    table = node.constant(0)
    columns = table.shape[1]
    tensor = source.into(Lookup, node.name, columns=columns, table=table)
    return View(tensor, numbers.index[..., None] * columns + np.arange(columns))


def _concat(node: Node) -> View:
    operands = [
        operand for operand in node.inputs if not isinstance(operand, np.ndarray) or operand.size
    ]
    if len(operands) == 1 and isinstance(operands[0], View):
        return operands[0]
    first, second = (*operands, None)[:2]
    if len(operands) != 2 or not isinstance(first, np.ndarray) or not isinstance(second, View):
        raise UnsupportedError("it joins something else than a constant row and the tokens")
    second = node.cache.without_function(second)
    source = second.tensor
    full_rows(second)
    token = first.astype(np.float64).reshape(-1)
    if len(token) != source.columns or node.attribute("axis", 0) not in (1, -2):
        raise UnsupportedError("it joins something else than a constant row and the tokens")
    tensor = source.into(Prepend, node.name, rows=source.rows + 1, row=token)
    return whole(tensor, (1, tensor.rows, tensor.columns))


def _gelu(node: Node) -> View:
    value = node.inputs[0]
    assert isinstance(value, View)
    return value.apply(gelu_tanh if node.attribute("approximate", "none") == "tanh" else gelu_erf)


def _where(node: Node) -> View:
    condition, kept, other = node.inputs
    scored = any(map(_are_scores, node.inputs))
    pair = (
        condition
        if isinstance(condition, Mask)
        else Mask(np.asarray(condition), np.asarray(condition))
    )
    if isinstance(condition, View):
        raise UnsupportedError("it changes scores by data" if scored else "it selects by data")
    if isinstance(other, View) and isinstance(kept, np.ndarray):
        pair, kept, other = Mask(~pair.full.astype(bool), ~pair.cut.astype(bool)), other, kept
    if not isinstance(kept, View) or not isinstance(other, np.ndarray):
        raise UnsupportedError("it does not take masked keys out of scores")
    if pair.full.all() and pair.cut.all():
        return kept
    added = Mask(
        np.where(pair.full, 0.0, other).astype(np.float64),
        np.where(pair.cut, 0.0, other).astype(np.float64),
    )
    return masked(kept, added)


def _binary(node: Node) -> View:
    left, right = node.inputs[:2]
    operation = BINARY[node.kind]
    if isinstance(left, Mask) or isinstance(right, Mask):
        view, mask = (left, right) if isinstance(left, View) else (right, left)
        if not isinstance(view, View) or not isinstance(mask, Mask):
            raise UnsupportedError("a mask is not added to scores")
        if isinstance(view.tensor, ZeroedPadding) and node.kind == "Div" and view is left:
            return shared_mean(node, view, mask)
        if isinstance(view.tensor, Scores) and _adds(node, view):
            sign = 1 if node.kind == "Add" else -1
            return masked(view, Mask(sign * mask.full, sign * mask.cut))
        if node.kind == "Mul":
            return zeroed_padding(node, node.cache.without_function(view), mask)
        if node.kind == "Add":
            return _shifted_where_known(node, view, mask)
        raise UnsupportedError("a mask is not added to scores")
    if isinstance(left, View) and isinstance(right, View):
        parts = [isinstance(operand.tensor, NormTerm) for operand in (left, right)]
        if all(parts) and node.kind in ("Add", "Sub"):
            return norm_term_sum(node, left, right)
        if node.kind == "Mul" and (any(parts) or _scales_rows(left, right)):
            return norm_term_product(node, left, right)
        if isinstance(right.tensor, RowMean) and not isinstance(left.tensor, RowMean):
            return _by_means(node, left, right)
        if isinstance(left.tensor, RowMean) and not isinstance(right.tensor, RowMean):
            return _by_means(node, right, left)
        return _of_two(node, left, right, operation)
    view, known = (left, right) if isinstance(left, View) else (right, left)
    assert isinstance(view, View)
    assert isinstance(known, np.ndarray)
    number = known.astype(np.float64)
    if isinstance(view.tensor, Scores) and _adds(node, view) and number.size > 1:
        number = number if node.kind == "Add" else -number
        return masked(view, Mask(number, number))
    if isinstance(view.tensor, NormTerm) and node.kind in ("Add", "Sub"):
        return norm_term_shift(node, view, number)
    if is_deviation(view) and node.kind == "Mul" and number.ndim and number.shape[-1] > 1:
        return scale_term(node, view, number)
    if number.size == 1:
        value = float(number.reshape(()))
        if view is left:
            return view.apply(lambda x: np.asarray(operation(x, value)))
        return view.apply(lambda x: np.asarray(operation(value, x)))
    if node.kind == "Div" and view is left:
        return scaled(node, node.cache.without_function(view), 1 / number)
    if node.kind == "Mul":
        return scaled(node, node.cache.without_function(view), number)
    if _adds(node, view):
        return shifted(
            node, node.cache.without_function(view), number if node.kind == "Add" else -number
        )
    raise UnsupportedError("it combines data with constants in an unknown form")


def _adds(node: Node, view: View) -> bool:
    """Return whether a node adds an operand to a view or subtracts it from the view."""
    return node.kind == "Add" or (node.kind == "Sub" and view is node.inputs[0])


def _scales_rows(left: View, right: View) -> bool:
    """Return whether rows, or their means, are multiplied by a function of their variance."""
    view, by = (left, right) if is_deviation(right) else (right, left)
    if not is_deviation(by):
        return False
    assert isinstance(by.tensor, RowMean)
    assert isinstance(by.tensor.source, Centred)
    source, own = by.tensor.source.source, view.tensor
    return own is source or (isinstance(own, RowMean) and not own.squares and own.source is source)


def _by_means(node: Node, view: View, by: View) -> View:
    """Return rows less their means, or divided by a function of the means of their squares."""
    if node.kind == "Sub" and by is node.inputs[1]:
        return centred(node, node.cache.without_function(view), by)
    if node.kind == "Mul" or (node.kind == "Div" and by is node.inputs[1]):
        multiply = node.kind == "Mul"
        return normalized(node, node.cache.without_function(view), by, multiply=multiply)
    raise UnsupportedError("it combines rows with their means other than as a norm does")


def _shifted_where_known(node: Node, view: View, mask: Mask) -> View:
    """Return rows plus numbers, like positions, that depend on the mask for missing tokens only."""
    view = node.cache.without_function(view)
    full, cut = (np.broadcast_to(v, view.shape) for v in (mask.full, mask.cut))
    there = view.index // view.tensor.columns != view.tensor.rows - 1
    if np.any((full != cut) & there):
        raise UnsupportedError("a mask is not added to scores")
    return shifted(node, view, np.asarray(full, np.float64))


def _of_two(node: Node, left: View, right: View, operation: Callable[[Any, Any], Any]) -> View:
    if left.tensor is right.tensor and np.array_equal(left.index, right.index):
        first, second = (view.function or (lambda x: x) for view in (left, right))
        return replace(left, function=lambda x: np.asarray(operation(first(x), second(x))))
    if _are_scores(left) or _are_scores(right):
        raise UnsupportedError("it changes scores by data")
    left, right = node.cache.without_function(left), node.cache.without_function(right)
    same = left.tensor.columns == right.tensor.columns and left.tensor.rows == right.tensor.rows
    if node.kind != "Add" or not same or not np.array_equal(left.index, right.index):
        raise UnsupportedError("it combines data other than as the sum of two tensors")
    full_rows(left)
    return View(added(node.name, left.tensor, right.tensor), left.places)


_KINDS: Mapping[str, Callable[[Node], View]] = {
    "BatchNormalization": batch_norm,
    "Concat": _concat,
    "Conv": conv,
    "Einsum": einsum,
    "Gelu": _gelu,
    "com.microsoft.Gelu": _gelu,
    "Gemm": gemm,
    "GlobalAveragePool": pooled_mean,
    "LayerNormalization": layer_norm,
    "MatMul": matmul,
    "RMSNormalization": layer_norm,
    "ReduceMean": mean,
    "ReduceSum": sum_over_tokens,
    "SimplifiedLayerNormalization": layer_norm,
    "Softmax": softmax,
    "Where": _where,
}
