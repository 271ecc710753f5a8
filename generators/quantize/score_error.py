"""Error of softmax's inputs: scores against exact arithmetic on the same stream and weights."""

from collections.abc import Iterator, Mapping

import numpy as np

from arch.norm import VALUE_FRACTION
from generators.frontend.weights import Floats
from generators.graph import Attention, Convert, Ints, Linear, Norm, Op, QuantizedModel, Rescale
from sim.matmul import WIDE_UNIT


def score_errors(
    model: QuantizedModel, found: Mapping[str, Ints], inputs: Floats
) -> Iterator[Floats]:
    """Yield the sizes of the errors of each attention's scores, [heads, n, n].

    ``found`` are the tensors that :func:`evaluate` returns of ``inputs``. Exact are the operations
    between the residual stream and the scores without any rounding, with weights and parameters as
    they are. The unit is that of scores, 2**-8 octaves.
    """
    count = len(inputs) + model.description.sequence - model.input.rows
    exact = _Exact(model, found, inputs)
    for op in model.ops:
        if isinstance(op, Attention):
            query, key = (exact.of(tensor.name)[:count] for tensor in (op.query, op.key))
            left = query.reshape(count, -1, op.key_dim).transpose(1, 0, 2)  # [heads, n, key_dim]
            right = key.reshape(count, -1, op.key_dim).transpose(1, 2, 0)  # [kv_heads, key_dim, n]
            sums = left @ right.repeat(op.group, axis=0) / (WIDE_UNIT if op.key.wide else 1)
            scores = _rescaled(sums.transpose(1, 2, 0), op.scores).transpose(2, 0, 1)
            yield np.asarray(np.abs(found[f"{op.prefix}.scores"][:, :count, :count] - scores))


class _Exact:
    """Tensors in their own steps without rounding, from the residual stream on."""

    def __init__(self, model: QuantizedModel, found: Mapping[str, Ints], inputs: Floats):
        self.model, self.found, self.inputs = model, found, inputs
        self.made: dict[str, Op] = {op.target.name: op for op in model.ops}

    def of(self, name: str) -> Floats:
        """Return a tensor, [rows, columns]."""
        op = self.made[name]
        assert isinstance(op, Norm | Convert | Linear), "no encoder has others before its scores"
        if isinstance(op, Linear):
            return _rescaled(self.of(op.source.name) @ op.weight, op.rescale)
        x = self._stream(op.source.name)
        if isinstance(op, Norm):
            n = x.shape[1]
            total = 0.0 if op.rms else x.sum(axis=1, keepdims=True)
            variance = n * np.sum(x * x, axis=1, keepdims=True) - total * total + op.eps
            x = (n * x - total) / np.sqrt(np.maximum(variance, 1)) * 2.0**VALUE_FRACTION
        return _rescaled(x, op.rescale)

    def _stream(self, name: str) -> Floats:
        """Return rows of the stream as they are, those that are loaded among them."""
        if name not in self.found:
            return np.asarray(self.model.quantize_input(self.inputs), np.float64)
        x, op = self.found[name].astype(np.float64), self.made[name]
        if isinstance(op, Linear) and op.row:
            assert self.model.start is not None, "rows before the first are loaded"
            x[: op.row] = self.model.start[: op.row]
        return x


def _rescaled(x: Floats, by: Rescale) -> Floats:
    """Return equation (1) without rounding and bounds."""
    return np.asarray((x + by.bias) * (by.multiplier * 2.0 ** (by.shift - 31.0)))
