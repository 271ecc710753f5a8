"""Choice of the quantization scales of the columns of queries, keys and values.

Keys and values may be stored with fewer than 8 bits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import OCTAVE_FRACTION
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.builder import network
from celosia.generators.graph.network import Description, Rotary
from celosia.generators.graph.operations import ROTARY_STEPS
from celosia.generators.graph.tensors import WIDE, Tensor
from celosia.generators.quantize.calibrate import Calibration
from celosia.generators.quantize.options import MIXED, NARROW_BITS, Quantization
from celosia.generators.quantize.steps import (
    HALF,
    best_step,
    best_steps,
    kept_range,
    spread_range,
    upper_step,
    wide_scale,
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
    """Scale of a query column times that of its key column, equal in a head's columns, [heads]."""
    raised: Floats
    """Offset that is added to the scores of each query head before their scale, [heads]."""


class HeadSteps:
    """Chooses the quantization scales of each column of an attention's queries, keys and values.

    If ``balance`` is 0, all value columns share a scale, unless ``options.deferred`` is true.
    Raises :class:`InputError` if a head has fewer than ``options.whole`` columns, or the number of
    value columns is not a multiple of ``options.block``.
    """

    def __init__(
        self, model: Description, calibration: Calibration, options: Quantization, balance: float
    ):
        self.model, self.calibration, self.options = model, calibration, options
        self.balance, width = balance, model.head_dim
        self.rotary = any(isinstance(node, Rotary) for node in network(model).all_nodes)
        self.full_width_columns = options.whole or 0
        """First columns of an integer key head that keep 8 bits."""
        if options.whole is None and self.rotary and options.kv_bits < NARROW_BITS:
            self.full_width_columns = width // 4 * 2
        if self.full_width_columns > width:
            raise InputError(
                f"Heads of {width} columns have no {self.full_width_columns} that keep 8 bits"
            )
        if options.block and model.kv_width % options.block:
            raise InputError(
                f"Model {model.name} has {model.kv_width} columns of values, which no blocks of "
                f"{options.block} share"
            )
        columns = np.arange(width)
        # The last pairs turn slowest.
        slow = (
            columns.reshape(-1, 2)[::-1].ravel()
            if self.rotary and self.full_width_columns
            else columns
        )
        self.columns = slow
        """Column of a float head for each column of an integer head, [key_dim]."""
        self._keys: dict[str, KeySteps] = {}

    def projected(self, tensor: Tensor, *, wide: bool) -> Tensor:
        """Return a copy of ``tensor`` (attention's queries or keys) with a scale for each column.

        The copy is INT16 if ``wide`` is true, or if the tensor's name ends in ``_sums``, which
        means that a rotary embedding follows. Otherwise, the copy has the width of ``tensor``.
        """
        prefix, _, kind = tensor.name.rpartition(".")
        name, steps = kind.removesuffix("_sums"), self.keys(prefix)
        by_head = steps.query if name == "query" else steps.key  # [heads, key_dim]
        picks = self._picks(tensor.columns)
        tensor = replace(tensor, columns=len(picks), picks=picks, gains=by_head.ravel())
        if kind == name:
            offsets = steps.middle.ravel() if name == "key" else None
            return replace(tensor, offsets=offsets, width=WIDE if wide else tensor.width)
        # An INT16 after the rotation has the steps of the one before it.
        return replace(tensor, scale=1.0 if wide else 1.0 / ROTARY_STEPS, width=WIDE)

    def unnormed(self, tensor: Tensor) -> Tensor:
        """Return a copy of ``tensor`` in INT16, with one scale for all columns.

        The tensor is queries or keys before a norm normalizes each head.
        """
        # The variance that norms add is an operand, the same in all layers.
        ranges = self.calibration.ranges.items()
        sizes = [bounds.size for name, bounds in ranges if name.endswith("_heads")]
        picks = self._picks(tensor.columns)
        return replace(tensor, scale=wide_scale(sizes), width=WIDE, picks=picks)

    def normed(self, tensor: Tensor) -> Tensor:
        """Return a copy of ``tensor`` in which each column of a head has a scale from calibration.

        The tensor is queries or keys after a norm has normalized each head. All heads have the same
        scales.
        """
        picks = self._picks(tensor.columns)
        by_head = self.calibration.values(tensor.name).reshape(-1, self.model.head_dim)
        gains = np.resize(best_steps(by_head[:, self.columns], INT8_MAX), len(picks))
        return replace(tensor, gains=gains, picks=picks)

    def value(self, tensor: Tensor) -> Tensor:
        """Return a copy of ``tensor`` (attention's values) with a scale and offset for each column.

        An offset is subtracted from the column's values before rounding. If ``options.deferred`` is
        true, all offsets are 0.
        """
        values = self.calibration.values(tensor.name)
        together = 1 if self.balance else tensor.columns
        if self.options.deferred:
            middle, steps = np.zeros(tensor.columns), best_steps(values, INT8_MAX)
        elif self.options.block:
            middle, steps = spread_range(values, together)
        else:
            middle, steps = kept_range(values, self.options.kv_bits, together)
        return replace(tensor, gains=steps, offsets=middle)

    def keys(self, prefix: str) -> KeySteps:
        """Return the scales of an attention's queries and keys, and of their products.

        ``prefix`` is the start of the attention's tensor names, such as ``layers.0``.
        """
        if prefix not in self._keys:
            source, cross = prefix.startswith("source."), prefix.endswith(".cross")
            self._keys[prefix] = quantize_keys(
                self.model,
                self._by_text(f"{prefix}.key", self.model.kv_heads, source=source or cross),
                self._by_text(f"{prefix}.query", self.model.heads, source=source),
                self.columns,
                self.full_width_columns,
                self.options,
                causal=not (source or cross),
                rotary=self.rotary,
            )
        return self._keys[prefix]

    def _picks(self, columns: int) -> NDArray[np.int64]:
        """Return the float model's column for each column of queries or keys."""
        first = np.arange(0, columns, self.model.head_dim)[:, None]
        return np.asarray((first + self.columns).ravel())

    def _by_text(self, name: str, heads: int, *, source: bool) -> list[Floats]:
        """Return a tensor's rows for each text, or for each source, [n, heads, head_dim] each."""
        rows = self.calibration.values(name).reshape(-1, heads, self.model.head_dim)
        count, length = self.calibration.tokens.shape
        counts = self.calibration.sources if source else (length,) * count
        return np.split(rows, np.cumsum(counts)[:-1])


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
    """Return the quantization scales and offsets of an attention layer's queries and keys.

    ``keys`` and ``queries`` have an array [n, heads, head_dim] for each sample text of n tokens.
    Column j of a quantized head is column ``columns[j]`` of the float head. A key's first ``whole``
    columns have 8 bits, its other columns ``options.kv_bits``.
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

    Queries have as few bits as keys, so both share the differences between columns. If all queries
    or all keys are zero, there are no differences to share.
    """
    pairs = (keys.shape[2] // 2, 2)
    of_keys = np.abs(keys).reshape(-1, model.kv_heads, *pairs).max(axis=(0, 3))
    split = np.abs(queries).reshape(-1, model.kv_heads, model.group, *pairs)
    of_queries = split.max(axis=(0, 2, 4))
    least, ratio = 1e-6, np.ones_like(of_keys)
    if of_keys.any() and of_queries.any():
        ratio = (of_keys + least * of_keys.max()) / (of_queries + least * of_queries.max())
    gains = np.repeat(np.sqrt(ratio), 2, axis=1)  # [kv_heads, head_dim]
    scaled = keys / gains  # [m, kv_heads, head_dim]
    steps = [best_step(scaled[:, head], INT8_MAX) for head in range(model.kv_heads)]
    return np.asarray(gains * np.array(steps)[:, None])
