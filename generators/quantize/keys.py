"""Steps of queries and keys that are multiplied, and of keys that are kept in few bits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arch.functions import OCTAVE_FRACTION
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Floats
from generators.quantize.options import Quantization
from generators.quantize.steps import (
    NARROW_BITS,
    attention_range,
    best_range,
    best_step,
    copied_middle,
)
from sim.requantize import INT16_MAX

INT8_MAX = 127
LOST = 20.0
"""Distance below the largest score at which a score has no weight (natural units)."""


@dataclass(frozen=True)
class KeySteps:
    """The real values of one integer step of queries and keys, and of their products."""

    query: Floats
    """[heads, key_dim]."""
    key: Floats
    """[kv_heads, key_dim]."""
    middle: Floats
    """Offset that is subtracted from keys before rounding, [kv_heads, key_dim]."""
    product: Floats
    """Of each query head's products, [heads]."""
    raised: Floats
    """Offset that is added to the scores of each query head before their scale, [heads]."""


def quantize_keys(
    model: TextDescription,
    keys: Sequence[Floats],
    queries: Sequence[Floats],
    columns: NDArray[np.int64],
    options: Quantization,
    *,
    causal: bool = True,
) -> KeySteps:
    """Return the steps of a layer's keys and queries [n, heads of their kind, head_dim].

    They are those of each text; not ``causal`` all queries attend to all keys of a text.
    ``columns`` [key_dim] tells which of a head's columns each integer one is.

    A query's step times a key's is the same for all columns of a head, so what a column of
    keys gains that of its queries loses. What is taken from all keys alike changes all scores
    of a query alike, and softmax not at all; so it may be taken behind the rotation.
    """
    rotary, narrow = model.position == "rotary", options.kv_bits < NARROW_BITS
    flat = np.concatenate(keys)  # [m, kv_heads, head_dim]
    asked = np.concatenate(queries)  # [m, heads, head_dim]
    if narrow:
        middle, steps = _narrow(model, np.stack(keys), np.stack(queries), columns, options.kv_bits)
    elif rotary:
        middle, steps = np.zeros(flat.shape[1:]), _balanced(model, flat, asked)
    else:
        found = best_range(flat.reshape(len(flat), -1), options.kv_bits)
        middle, steps = (one.reshape(flat.shape[1:]) for one in found)
    raised = _raised(model, queries, [one - middle for one in keys], causal=causal)
    # A pair that is kept twice has half the weight each time.
    copies = np.bincount(columns)[columns]  # [key_dim]
    copy = np.arange(len(columns)) // model.head_dim
    middle = copied_middle(middle[:, columns], steps[:, columns], copies, copy)
    steps = steps[:, columns]  # [kv_heads, key_dim]
    weight = np.repeat(steps, model.group, axis=0) / copies  # [heads, key_dim]
    weighed = asked[:, :, columns] * weight
    product = np.array([best_step(weighed[:, head], INT8_MAX) for head in range(model.heads)])
    if options.alike:
        product[:] = product.max()
    return KeySteps(product[:, None] / weight, steps, middle, product, raised)


def _raised(
    model: TextDescription, queries: Sequence[Floats], keys: Sequence[Floats], *, causal: bool
) -> Floats:
    """Return what is added to the scores of each head [heads], before their scale.

    Softmax does not notice, but INT16 has room for scores of -89 to 88 natural units only. The
    largest scores of queries come to lie as far from the upper end as from LOST above the
    lower one: what is so much less than the largest counts for nothing.
    """
    room = INT16_MAX / 2.0**OCTAVE_FRACTION * math.log(2)
    raised = np.zeros(model.heads)
    for head in range(model.heads):
        low, high = math.inf, -math.inf
        for asked, kept in zip(queries, keys, strict=True):
            scores = asked[:, head] @ kept[:, head // model.group].T
            if causal:
                scores = np.where(np.tri(len(asked), dtype=bool), scores, -np.inf)
            largest = scores.max(axis=1) / math.sqrt(model.head_dim)
            low, high = min(low, largest.min()), max(high, largest.max())
        if high > room / 2 or low < LOST - room / 2:
            raised[head] = (LOST - low - high) / 2 * math.sqrt(model.head_dim)
    return raised


def _narrow(
    model: TextDescription, keys: Floats, queries: Floats, columns: NDArray[np.int64], bits: int
) -> tuple[Floats, Floats]:
    """Return middles and steps of keys [kv_heads, head_dim] in few bits.

    Queries are rotated in their steps, so a pair of theirs has one, as that of the keys.
    """
    together = 2 if model.position == "rotary" else 1
    copies = np.bincount(columns).tolist()
    asked = queries.reshape(*keys.shape[:3], model.group, model.head_dim)
    found = [
        attention_range(keys[:, :, head], asked[:, :, head].swapaxes(1, 2), bits, together, copies)
        for head in range(model.kv_heads)
    ]
    return np.stack([one for one, _ in found]), np.stack([one for _, one in found])


def _balanced(model: TextDescription, keys: Floats, queries: Floats) -> Floats:
    """Return steps of INT8 keys [kv_heads, head_dim], alike in the columns of a pair.

    Queries have as few bits as keys, so both share what columns differ in.
    """
    pairs = (model.head_dim // 2, 2)
    of_keys = np.abs(keys).reshape(-1, model.kv_heads, *pairs).max(axis=(0, 3))
    split = np.abs(queries).reshape(-1, model.kv_heads, model.group, *pairs)
    of_queries = split.max(axis=(0, 2, 4))
    least = 1e-6
    ratio = (of_keys + least * of_keys.max()) / (of_queries + least * of_queries.max())
    gains = np.repeat(np.sqrt(ratio), 2, axis=1)  # [kv_heads, head_dim]
    scaled = keys / gains  # [m, kv_heads, head_dim]
    steps = [best_step(scaled[:, head], INT8_MAX) for head in range(model.kv_heads)]
    return np.asarray(gains * np.array(steps)[:, None])
