"""Quantization scales of queries and keys; keys may be stored with few bits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import OCTAVE_FRACTION
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.network import Description
from celosia.generators.quantize.options import MIXED, NARROW_BITS, Quantization
from celosia.generators.quantize.steps import (
    HALF,
    best_step,
    kept_range,
    upper_step,
    wide_step,
)
from celosia.sim.requantize import INT16_MAX

INT8_MAX = 127
LOST = 20.0
"""Distance below the largest score at which a score has no weight (natural units)."""


@dataclass(frozen=True)
class KeySteps:
    """Scales and offsets of a layer's queries, of its keys, and of products of query and key."""

    query: Floats
    """[heads, key_dim]."""
    key: Floats
    """[kv_heads, key_dim]."""
    middle: Floats
    """Offset that is subtracted from keys before rounding, [kv_heads, key_dim]."""
    product: Floats
    """For each query head's products, [heads]."""
    raised: Floats
    """Offset that is added to the scores of each query head before their scale, [heads]."""


def quantize_keys(
    model: Description,
    keys: Sequence[Floats],
    queries: Sequence[Floats],
    columns: NDArray[np.int64],
    whole: int,
    options: Quantization,
    *,
    causal: bool = True,
    rotary: bool,
) -> KeySteps:
    """Return the quantization scales of a layer's keys and queries.

    ``keys`` is a list of arrays [n, kv_heads, head_dim], one for each text. ``queries`` is a list
    of arrays [n, heads, head_dim]. If ``causal`` is true, a query attends only to the keys of its
    token and of earlier tokens, otherwise to all keys of its text. If ``rotary`` is true, keys and
    queries are rotated by their positions. Stored column j of a key is
    column ``columns[j]`` of the float model's head. The first ``whole`` stored columns keep 8 bits;
    the option ``kv_bits`` sets the number of bits of the others.

    The product of the query's and the key's scale is the same for all columns of a head. So a
    larger scale of a key column means a smaller scale of the query column. The offset ``middle``
    that is subtracted from keys changes all scores of a query by the same amount, so it does not
    change the softmax. It is 0 for rotary keys.
    """
    narrow = options.kv_bits < NARROW_BITS and whole < len(columns)
    mixed = options.activations == MIXED
    flat = np.concatenate(keys)[:, :, columns]  # [m, kv_heads, key_dim]
    asked = np.concatenate(queries)[:, :, columns]  # [m, heads, key_dim]
    if rotary:
        middle = np.zeros(flat.shape[1:])
        if mixed:
            # Queries have enough bits for the factors by which keys grow.
            steps = _narrow(flat, NARROW_BITS, len(columns))
        elif narrow:
            steps = _narrow(flat, options.kv_bits, whole)
        else:
            steps = _balanced(model, flat, asked)
    else:
        bits = options.kv_bits if narrow else NARROW_BITS
        bounds = kept_range(flat.reshape(len(flat), -1), bits)
        middle, steps = (bound.reshape(flat.shape[1:]) for bound in bounds)
    # Lower bits that are left out are half a step of the upper ones, all the same.
    lost = HALF * steps if narrow else 0.0
    order = [head_rows[:, :, columns] for head_rows in queries]
    kept = [head_rows[:, :, columns] - middle - lost for head_rows in keys]
    raised = _raised(model, order, kept, causal=causal, alike=options.alike)
    weight = np.repeat(steps, model.group, axis=0)  # [heads, key_dim]
    weighed = asked * weight
    of_head = [weighed[:, head] for head in range(model.heads)]
    product = np.array(
        [wide_step(head_rows) if mixed else best_step(head_rows, INT8_MAX) for head_rows in of_head]
    )
    if options.alike:
        product[:] = product.max()
    return KeySteps(product[:, None] / weight, steps, middle, product, raised)


def _raised(
    model: Description,
    queries: Sequence[Floats],
    keys: Sequence[Floats],
    *,
    causal: bool,
    alike: bool,
) -> Floats:
    """Return the offset added to the scores of each head [heads], before their scale.

    Softmax does not depend on it, but INT16 has room for scores of -89 to 88 natural units only.
    The largest scores of queries are centred between the upper end and LOST above the lower one: a
    score that is so much less than the largest counts for nothing. All ``alike`` heads have the
    same offset.
    """
    room = INT16_MAX / 2.0**OCTAVE_FRACTION * math.log(2)
    lows, highs = np.zeros(model.heads), np.zeros(model.heads)
    for head in range(model.heads):
        low, high = math.inf, -math.inf
        for asked, kept in zip(queries, keys, strict=True):
            scores = asked[:, head] @ kept[:, head // model.group].T
            if causal:
                scores = np.where(np.tri(len(asked), dtype=bool), scores, -np.inf)
            largest = scores.max(axis=1) / math.sqrt(model.head_dim)
            low, high = min(low, largest.min()), max(high, largest.max())
        lows[head], highs[head] = low, high
    if alike:
        lows[:], highs[:] = lows.min(), highs.max()
    outside = (highs > room / 2) | (lows < LOST - room / 2)
    return np.where(outside, (LOST - lows - highs) / 2 * math.sqrt(model.head_dim), 0.0)


def _narrow(keys: Floats, bits: int, whole: int) -> Floats:
    """Return the INT8 steps of rotated keys [kv_heads, key_dim] whose upper ``bits`` are kept.

    The first ``whole`` columns are kept in all bits. Queries are rotated in their steps, so a pair
    of their columns has one step, like that of the keys.
    """
    pairs = keys.reshape(len(keys), keys.shape[1], -1, 2)
    steps = np.empty(pairs.shape[1:3])
    for head, pair in np.ndindex(steps.shape):
        values = pairs[:, head, pair]
        full = 2 * pair + 2 <= whole
        steps[head, pair] = best_step(values, INT8_MAX) if full else upper_step(values, bits)
    return np.repeat(steps, 2, axis=1)


def _balanced(model: Description, keys: Floats, queries: Floats) -> Floats:
    """Return steps of INT8 keys [kv_heads, head_dim], equal in the columns of a pair.

    Queries have as few bits as keys, so both share the differences between columns.
    """
    pairs = (keys.shape[2] // 2, 2)
    of_keys = np.abs(keys).reshape(-1, model.kv_heads, *pairs).max(axis=(0, 3))
    split = np.abs(queries).reshape(-1, model.kv_heads, model.group, *pairs)
    of_queries = split.max(axis=(0, 2, 4))
    least = 1e-6
    ratio = (of_keys + least * of_keys.max()) / (of_queries + least * of_queries.max())
    gains = np.repeat(np.sqrt(ratio), 2, axis=1)  # [kv_heads, head_dim]
    scaled = keys / gains  # [m, kv_heads, head_dim]
    steps = [best_step(scaled[:, head], INT8_MAX) for head in range(model.kv_heads)]
    return np.asarray(gains * np.array(steps)[:, None])
