"""A quantized model evaluated in whole operations, which knows no tiles and no programs."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from generators.compiler import CompiledModel
from generators.frontend.description import ModelDescription
from generators.frontend.embedding import lookup
from generators.frontend.weights import Floats, Weights
from generators.graph import Attention, Convert, Linear, Norm, Pool, QuantizedModel
from sim.norm import normalize
from sim.requantize import requantize, saturate16
from sim.softmax import softmax

Ints = NDArray[np.int64]


def given(model: ModelDescription, weights: Weights, sample: NDArray[Any]) -> Floats:
    """Return what the host gives the machine for an input."""
    return sample if model.embedding == "linear" else lookup(model, weights, sample[None])[0]


def evaluate(model: QuantizedModel, config: Config, values: Floats) -> dict[str, Ints]:
    """Return every tensor of a quantized model by name, whole operations at a time."""
    low, high = config.operand_min, config.operand_max
    length = len(values) + model.description.sequence - model.input.rows
    given = np.zeros((model.input.rows, model.input.columns))
    given[: len(values)] = values
    held = {model.input.buffer: model.quantize_input(given).astype(np.int64)}
    found = {}
    if model.start is not None:
        held[model.before[0].target.buffer] = model.start

    def rescaled(x, r, target, zero, floor=None):
        bounds = (-32768, 32767) if target.wide else (low, high)
        bounds = (bounds[0] if floor is None else floor, bounds[1])
        return requantize(x, r.bias, r.multiplier, r.shift, zero, *bounds).astype(np.int64)

    def keep(target, y, residual=False, row=0):
        if residual:
            old = held[target.buffer][row : row + len(y)]
            y = saturate16(old + y).astype(np.int64)
        whole = np.zeros((target.rows, target.columns), np.int64)
        if row:
            whole[:] = held[target.buffer]
        whole[row : row + len(y)] = y
        held[target.buffer] = whole
        # Rows before the first are loaded, and no instruction computes them.
        found[target.name] = np.concatenate([np.zeros_like(whole[:row]), whole[row:]])

    for op in [*model.before, *(op for layer in model.layers for op in layer), *model.after]:
        target = op.target
        if isinstance(op, Linear):
            sums = (held[op.source.buffer] - op.source.zero)[: op.source.rows] @ op.weight
            zero = 0 if op.table is not None else target.zero
            y = rescaled(sums, op.rescale, target, zero, target.zero if op.relu else None)
            if op.table is not None:
                y = op.table[y + 128]
            keep(target, y, op.residual, op.row)
        elif isinstance(op, Norm):
            x = held[op.source.buffer][: op.source.rows]
            value, _ = normalize(x, rms=op.rms, eps=op.eps)
            keep(target, rescaled(value, op.rescale, target, target.zero))
        elif isinstance(op, Convert):
            x = held[op.source.buffer][: op.source.rows]
            keep(target, rescaled(x, op.rescale, target, target.zero))
        elif isinstance(op, Pool):
            total = held[op.source.buffer][:length].sum(axis=0, keepdims=True)
            keep(target, rescaled(total, op.rescale(length), target, target.zero))
        elif isinstance(op, Attention):
            prefix = op.query.name.rpartition(".")[0]
            group = len(op.heads) * op.head_dim // op.key.columns
            scores, matrices, contexts = [], [], []
            for index, head in enumerate(op.heads):
                own = slice(index * op.head_dim, (index + 1) * op.head_dim)
                shared = slice(index // group * op.head_dim, (index // group + 1) * op.head_dim)
                query, key = held[op.query.buffer][:, own], held[op.key.buffer][:, shared]
                wide = rescaled(query @ key.T, op.scores, model.stream, 0)
                p = softmax(wide, np.broadcast_to(np.arange(len(wide)) < length, wide.shape))
                if head.diagonal is not None:
                    p = p + head.diagonal * np.eye(len(p), dtype=np.int64)
                matrix = rescaled(p, head.probabilities, op.key, op.probability_zero)
                sums = (matrix - op.probability_zero) @ held[op.value.buffer][:, shared]
                contexts.append(rescaled(sums, head.context, target, 0))
                scores.append(wide)
                matrices.append(matrix)
            found[f"{prefix}.scores"] = np.array(scores)
            found[f"{prefix}.probabilities"] = np.array(matrices)
            keep(target, np.concatenate(contexts, axis=1), op.residual)
    return found


def taken_in(quantized: QuantizedModel, config: Config) -> set[str]:
    """Return tensors that may go straight into softmax and norm, in parts or as a whole."""
    if not config.fused:
        return set()
    ops = [*quantized.before, *(op for layer in quantized.layers for op in layer), *quantized.after]
    sums = {op.target.name for op, behind in itertools.pairwise(ops) if isinstance(behind, Norm)}
    queries = [op.query.name for op in ops if isinstance(op, Attention)]
    return sums | {f"{name.rpartition('.')[0]}.scores" for name in queries}


def differing(
    compiled: CompiledModel, tensors: Mapping[str, Ints], values: Floats
) -> tuple[list[str], int]:
    """Return the tensors of an inference that are not those of :func:`evaluate`, and the count.

    ``tensors`` are those of :meth:`generators.golden.GoldenModel.tensors` for the input ``values``.
    Transposed copies are not compared, nor what the configuration never writes to memory.
    """
    expected = evaluate(compiled.quantized, compiled.config, values)
    inside = taken_in(compiled.quantized, compiled.config)
    copies = {name for name in tensors if name.endswith("_transposed")}
    names = (expected.keys() | tensors.keys()) - inside - copies
    wrong = [
        name
        for name in sorted(names)
        if not (
            name in tensors and name in expected and np.array_equal(tensors[name], expected[name])
        )
    ]
    return wrong, len(names)
