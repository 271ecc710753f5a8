"""Recognition of attention in ONNX nodes: products of queries and keys, softmax, masks."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.onnx.node import Node, whole
from celosia.generators.frontend.onnx.values import (
    Context,
    Index,
    Mask,
    PoolingScores,
    Scores,
    UnsupportedError,
    View,
)
from celosia.generators.reference.cache import in_window

LEAST_MASKED = -1e4
"""Largest term that a mask adds to the scores of a masked key."""


def scores(node: Node, left: View, right: View) -> View:
    """Return a :class:`View` of each head's scores: queries ``left`` times keys ``right``."""
    factors = left.factor(), right.factor()
    if factors[0] is None or factors[1] is None:
        raise UnsupportedError("it multiplies data by data that are not queries and keys")
    queries = _head_columns(left, _as_heads(left.index))
    keys = _head_columns(right, _as_heads(right.index).swapaxes(1, 2))
    rows = left.tensor.rows
    tensor = Scores(
        node=node.name,
        rows=len(queries) * rows,
        columns=rows,
        query=left.tensor,
        key=right.tensor,
        query_columns=queries,
        key_columns=np.broadcast_to(keys, queries.shape),
        factor=factors[0] * factors[1],
    )
    return whole(tensor, (*left.shape[:-1], rows))


def pooling_scores(node: Node, queries: tuple[int, ...], keys: View) -> View:
    """Return a view of the scores of a pooling by attention, [..., n, tokens].

    A score is the product of one of ``n`` constant queries and a token's key. ``queries`` is only
    the shape of the queries, [..., n, head_dim]; ``keys`` is a view [..., head_dim, tokens]. The
    view's tensor records no numbers, only a shape.
    """
    lead = np.broadcast_shapes(queries[:-2], keys.shape[:-2])
    shape = *lead, queries[-2], keys.shape[-1]
    rows = math.prod(shape[:-1])
    return whole(PoolingScores(node=node.name, rows=rows, columns=shape[-1]), shape)


def softmax(node: Node) -> View:
    """Return a :class:`View` of a Softmax node's result: each query's softmax over the keys."""
    view = node.inputs[0]
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1)
    if isinstance(view, View) and isinstance(view.tensor, PoolingScores):
        return view
    if not isinstance(view, View) or not isinstance(view.tensor, Scores):
        raise UnsupportedError("it is not taken of products of queries and keys")
    factor = view.factor()
    first, last = axis % len(view.shape), len(view.shape) - 1
    # Below opset 13 it is taken over the elements of all axes from the one that is named on.
    keys = first == last or (node.opset < 13 and math.prod(view.shape[first:last]) == 1)
    if factor is not None and view.ordered and not keys and first == last - 1:
        return _turned(node, view, factor)
    if not keys or factor is None or not view.ordered:
        raise UnsupportedError("it is not taken over the keys")
    scores = replace(view.tensor, node=node.name, factor=view.tensor.factor * factor, softmax=True)
    return View(scores, view.places)


def _turned(node: Node, view: View, factor: float) -> View:
    """Return a softmax of products of keys and queries, whose columns belong to one query."""
    old = view.tensor
    assert isinstance(old, Scores)
    if old.variable or old.causal or old.window:
        raise UnsupportedError("it is not taken over the keys, and a mask removes some of these")
    made = replace(
        old,
        node=node.name,
        query=old.key,
        key=old.query,
        query_columns=old.key_columns,
        key_columns=old.query_columns,
        factor=old.factor * factor,
        softmax=True,
    )
    return View(made, np.swapaxes(view.index, -1, -2))


def context(node: Node, left: View, right: View) -> View:
    """Return a :class:`View` of an attention's result: values ``right`` weighted by ``left``.

    ``left`` is a view of the softmax of the attention's scores.
    """
    scores = left.tensor
    assert isinstance(scores, Scores)
    if not scores.softmax or left.factor() != 1.0 or not left.ordered:
        raise UnsupportedError("it multiplies scores that are no softmax")
    columns = _head_columns(right, _as_heads(right.index))
    heads, head_dim = len(scores.query_columns), columns.shape[1]
    rows = right.tensor.rows
    tensor = Context(
        node=node.name,
        rows=rows,
        columns=heads * head_dim,
        scores=scores,
        value=right.tensor,
        value_columns=np.broadcast_to(columns, (heads, head_dim)),
    )
    index = np.arange(rows * tensor.columns).reshape(rows, heads, head_dim).swapaxes(0, 1)
    return View(tensor, index.reshape(*left.shape[:-1], head_dim))


def masked(view: View, mask: Mask) -> View:
    """Return a :class:`View` of attention scores that includes a mask.

    The graph adds ``mask`` to the scores ``view``. The result describes the mask by fields of
    :class:`Scores`: the mask may hide padding, later tokens, or tokens outside of a window. Raises
    :class:`UnsupportedError` for any other mask.
    """
    scores = view.tensor
    if not isinstance(scores, Scores) or scores.softmax:
        raise UnsupportedError("a mask is not applied to scores")
    try:
        # A mask that is the same for all queries stays a row of keys.
        own = np.broadcast_shapes(mask.full.shape, mask.cut.shape, (1, 1))
        shape = (*own[:-1], view.shape[-1])
        full, cut = (np.broadcast_to(v, shape) for v in (mask.full, mask.cut))
        fits = np.broadcast_shapes(shape, view.shape) == view.shape
    except ValueError:
        fits = False
    if not fits:
        raise UnsupportedError("its mask has another shape than the scores")
    out, later = full <= LEAST_MASKED, np.triu(np.ones(shape[-2:], bool), 1)
    later &= shape[-2] == view.shape[-2]
    causal = bool(later.any()) and bool(np.all(out == later))
    if np.any(full[~out] != 0):
        raise UnsupportedError("its mask adds numbers to scores that it does not take out")
    window, shared = (0, 0) if causal else _window(out, view.shape[-2])
    if out.any() and not causal and not window:
        raise UnsupportedError(
            "its mask takes out other keys than those of missing tokens, of later ones, or of all "
            "outside a window"
        )
    changed = cut != full
    variable = bool(changed.any())
    if np.any(changed[..., :-1] & ~out[..., :-1]) or (
        variable and np.any(cut[..., -1] > LEAST_MASKED)
    ):
        raise UnsupportedError(
            "its mask does not take out the keys of missing tokens, and only them"
        )
    factor = view.factor()
    if factor is None:
        raise UnsupportedError("a mask is applied to a function of scores")
    made = replace(
        scores,
        factor=scores.factor * factor,
        variable=scores.variable or variable,
        causal=scores.causal or causal,
        window=window or scores.window,
        global_tokens=shared if window else scores.global_tokens,
    )
    if made.window and (made.variable or made.causal or (window and scores.window)):
        raise UnsupportedError("its mask takes out more keys than those outside a window")
    return View(made, view.places)


def _window(out: NDArray[np.bool_], rows: int) -> tuple[int, int]:
    """Return the window to each side and the number of global tokens of a mask, or zeros."""
    seen = ~out.reshape(-1, *out.shape[-2:])
    if not out.any() or seen.shape[1:] != (rows, rows):
        return 0, 0
    hidden = np.flatnonzero(~seen[0, -1])
    if not hidden.size:
        return 0, 0
    window, shared = rows - 2 - int(hidden[-1]), int(hidden[0])
    alike = window > 0 and np.all(seen == in_window(rows, window, shared))
    return (window, shared) if alike else (0, 0)


def _head_columns(view: View, index: Index) -> Index:
    """Return the columns [heads, head_dim] of an index [heads, rows, head_dim]."""
    rows, columns = np.divmod(index, view.tensor.columns)
    if index.shape[1] < view.tensor.rows == np.unique(rows).size:
        raise UnsupportedError("it attends within parts of its tokens")
    if index.shape[1] != view.tensor.rows:
        raise UnsupportedError("it does not multiply heads of all tokens")
    inside = rows == np.arange(view.tensor.rows)[:, None]
    if not inside.all() or np.any(columns != columns[:, :1]):
        raise UnsupportedError("it does not multiply heads of all tokens")
    return np.asarray(columns[:, 0])


def _as_heads(index: Index) -> Index:
    if index.ndim < 2:
        raise UnsupportedError("it does not multiply heads of all tokens")
    return index.reshape(-1, *index.shape[-2:])
