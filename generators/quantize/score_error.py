"""Errors of a quantized model's attention scores, compared with exact arithmetic."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.norm import VALUE_FRACTION
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import (
    ROTARY_STEPS,
    Attention,
    Convert,
    Linear,
    Norm,
    Op,
    Rotary,
)
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.tensors import Ints, Rescale
from celosia.generators.reference.cache import KvCache, attended
from celosia.sim.matmul import WIDE_UNIT
from celosia.sim.pairs import BITS
from celosia.sim.requantize import INT16_MAX
from celosia.sim.rotary import ROTARY_FRACTION


def score_errors(
    model: IntegerGraph, tensors: Mapping[str, Ints], inputs: NDArray[Any]
) -> Iterator[Floats]:
    """Yield the absolute errors of each self-attention's scores, [heads, pairs of tokens].

    ``tensors`` is the result of :func:`evaluate` for ``inputs``. The unit of errors is 1/256: the
    softmax computes ``2**(score / 256)``. Attentions with keys below 8 bits or a deferred division
    are left out. Saturation of a score is not an error.
    """
    exact = _Exact({op.target.name: op for op in model.ops}, _rows_of(model, tensors, inputs))
    added = 0 if model.reads_tokens else model.description.sequence - model.input.rows
    count = len(inputs) + added
    for op in model.ops:
        if not isinstance(op, Attention) or op.key.home is Home.SOURCE:
            continue
        if op.kv_bits < BITS or op.deferred:
            continue
        wanted, seen = exact.scores(op, count), attended(op, KvCache(length=count), count, count)
        if op.key.home is Home.CACHE:
            wanted = np.clip(wanted, -INT16_MAX - 1, INT16_MAX)
        scores = tensors[f"{op.prefix}.scores"][:, :count, :count]
        yield np.abs(scores - wanted)[:, seen]


class _Exact:
    """Tensors in their steps without rounding, from the residual stream on.

    ``rows`` returns the integer rows of a stream by its name.
    """

    def __init__(self, made: Mapping[str, Op], rows: Callable[[str], Floats]):
        self.made, self.rows = made, rows

    def scores(self, op: Attention, count: int) -> Floats:
        """Return the scores of the first ``count`` rows, [heads, count, count]."""
        query, key = (self.of(tensor.name)[:count] for tensor in (op.query, op.key))
        left = query.reshape(count, -1, op.key_dim).transpose(1, 0, 2)  # [heads, n, key_dim]
        right = key.reshape(count, -1, op.key_dim).transpose(1, 2, 0)  # [kv_heads, key_dim, n]
        sums = left @ right.repeat(op.group, axis=0) / (WIDE_UNIT if op.key.wide else 1)
        return _rescaled(sums.transpose(1, 2, 0), op.scores).transpose(2, 0, 1)

    def of(self, name: str) -> Floats:
        """Return a tensor, [rows, columns]."""
        op = self.made[name]
        assert isinstance(op, Norm | Convert | Linear | Rotary), "others are not before scores"
        if isinstance(op, Linear):
            return _rescaled(self._sums(op), op.rescale)
        if isinstance(op, Rotary):
            return _rotated(self.of(op.source.name), op)
        x = self.rows(op.source.name)
        rows = x.shape
        if isinstance(op, Norm):
            x, n = x.reshape(-1, op.width), op.width
            total = 0.0 if op.rms else x.sum(axis=1, keepdims=True)
            variance = n * np.sum(x * x, axis=1, keepdims=True) - total * total + op.eps
            x = (n * x - total) / np.sqrt(np.maximum(variance, 1)) * 2.0**VALUE_FRACTION
        return _rescaled(x, op.rescale).reshape(rows)

    def _sums(self, op: Linear) -> Floats:
        """Return the sums of a linear layer, with its low-rank correction."""
        x = self.of(op.source.name)
        sums, low = x @ op.weight, op.low_rank
        if low is not None:
            sums = sums + _rescaled(x @ low.first.weight, low.first.rescale) @ low.weight
        return np.asarray(sums)


def _rows_of(
    model: IntegerGraph, tensors: Mapping[str, Ints], inputs: NDArray[Any]
) -> Callable[[str], Floats]:
    """Return a function that returns the integer rows of a stream, loaded rows included."""
    made = {op.target.name: op for op in model.ops}

    def rows(name: str) -> Floats:
        if name not in tensors:
            return np.asarray(model.quantize_input(inputs), np.float64)
        x, op = tensors[name].astype(np.float64), made[name]
        if isinstance(op, Linear) and op.row:
            assert model.start is not None, "rows before the first are loaded"
            x[: op.row] = model.start[: op.row]
        return x

    return rows


def _rotated(x: Floats, op: Rotary) -> Floats:
    """Return equation (9) for rows from the first place on, without rounding and bounds."""
    n, columns = x.shape
    pairs = np.tile(op.at(np.arange(n)), columns // op.pairs.shape[1]) * 2.0**-ROTARY_FRACTION
    cosine, sine = pairs[:, 0::2], pairs[:, 1::2]
    first, second = x[:, 0::2], x[:, 1::2]
    rotated = np.stack((first * cosine - second * sine, first * sine + second * cosine), axis=-1)
    return rotated.reshape(x.shape) / (1 if op.target.wide else ROTARY_STEPS)


def _rescaled(x: Floats, by: Rescale) -> Floats:
    """Return equation (1) without rounding and bounds."""
    return np.asarray((x + by.bias) * (by.multiplier * 2.0 ** (by.shift - 31.0)))
