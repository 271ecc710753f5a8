"""The integer reference: evaluates any quantized model with whole tensors, without tiling."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import (
    Attention,
    Convert,
    Embedding,
    Gate,
    Linear,
    Norm,
    Op,
    Pool,
    Rotary,
)
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.tensors import WIDE, Ints, Rescale, Tensor
from celosia.generators.reference.cache import KvCache, attended
from celosia.generators.reference.floats import check_tokens
from celosia.sim import blocks
from celosia.sim.matmul import multiply, multiply_wide
from celosia.sim.norm import normalize, row_factors
from celosia.sim.pairs import BITS, score_sums, upper
from celosia.sim.polynomial import evaluate_table
from celosia.sim.requantize import requantize, saturate16, times_factor
from celosia.sim.rotary import rotate, times
from celosia.sim.softmax import row_weights, softmax
from celosia.sim.table import lookup


def evaluate(
    model: IntegerGraph, inputs: ArrayLike, cache: KvCache | None = None
) -> dict[str, Ints]:
    """Evaluate a quantized model; return the machine's integers of each tensor by name.

    ``inputs`` are real values [tokens, features], or tokens [n] that continue the text in
    ``cache``. Attention scores and probabilities are [heads, rows, tokens], other tensors [rows,
    columns]. Raises :class:`InputError` for invalid tokens.
    """
    return _Evaluation(model, np.asarray(inputs), KvCache() if cache is None else cache).run()


def fused_away(model: IntegerGraph) -> set[str]:
    """Return the names of the tensors that a machine with fused operations does not store.

    These tensors are the scores before each softmax, and the tensor before each normalization. If
    the configuration has ``fused``, their values pass from the accumulators to the vector engine,
    not through the scratchpad.
    """
    sums = {
        op.target.name for op, behind in itertools.pairwise(model.ops) if isinstance(behind, Norm)
    }
    return sums | {f"{op.prefix}.scores" for op in model.ops if isinstance(op, Attention)}


def _bounds(width: int) -> tuple[int, int]:
    half = 1 << (width - 1)
    return -half, half - 1


class _Evaluation:
    """One evaluation of a graph.

    A decoder's tensors, with the equations of docs/numerics.md in parentheses. The residual stream
    ``x``, the scores ``q k'`` and the logits are INT16, all other tensors INT8::

        x = embedding[token]                      (2); learned positions are added
        h = norm(x)                               (4)
        q, k = rotate(h Wq), rotate(h Wk)         (9); some models first apply norm (4) to each head
        v = h Wv                                  (1)
        p = softmax(q k')                         (1), (3)
        x = x + (p v) Wo                          (1), (2)
        x = x + cross(norm(x))                    encoder-decoder: attention to k, v of the source
        h = norm(x)                               (4)
        x = x + (silu(h Wg) * (h Wu)) Wd          (2), (10); or x + gelu(h Wu) Wd
        logits = norm(x) Wh                       (4), (1)
    """

    def __init__(self, model: IntegerGraph, inputs: NDArray[Any], cache: KvCache):
        self.model, self.cache = model, cache
        self.found: dict[str, Ints] = {}
        self.held: dict[str, Ints] = {}
        """Contents of every buffer."""
        self.factors: list[Ints] = []
        """Mantissas and shifts of the row factors of the last deferred norm, [rows, 1] each."""
        self.held[model.input.buffer] = self._input(inputs).astype(np.int64)
        self.places = np.arange(self.length) if model.encodes else cache.reserve(self.length)

    def _input(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the machine's input, and load the stream's first content.

        Token numbers are checked; they must be able to follow the text so far. Other inputs are
        padded and quantized.
        """
        model, self.length = self.model, len(inputs)
        if model.reads_tokens:
            check_tokens(model.description, inputs, 0, source=model.encodes)
            total = self.cache.length + self.length
            if not model.encodes and total > model.places:
                raise InputError(
                    f"Model {model.description.name} takes at most {model.places} tokens, not "
                    f"{total}"
                )
            return inputs
        rows = np.zeros((model.input.rows, model.input.columns))
        rows[: len(inputs)] = inputs
        self.length = len(inputs) + model.description.sequence - model.input.rows
        if model.start is not None:
            self.held[model.before[0].target.buffer] = model.start
        return model.quantize_input(rows)

    def run(self) -> dict[str, Ints]:
        for op in self.model.ops:
            self._op(op)
        return self.found

    def _op(self, op: Op) -> None:
        match op:
            case Embedding():
                self._embedding(op)
            case Linear():
                self._linear(op)
            case Norm() if op.deferred:
                rows = self._rows(op.source)
                *self.factors, _ = row_factors(rows, eps=op.eps)
                self._keep(op.target, _rescaled(rows, op.rescale, op.target))
            case Norm():
                rows = self._rows(op.source)
                value, _ = normalize(rows.reshape(-1, op.width), rms=op.rms, eps=op.eps)
                normed = _rescaled(value, op.rescale, op.target)
                self._keep(op.target, normed.reshape(rows.shape))
            case Convert():
                self._keep(op.target, _rescaled(self._rows(op.source), op.rescale, op.target))
            case Rotary():
                x = self._rows(op.source)
                pairs = np.tile(op.at(self.places), x.shape[1] // op.pairs.shape[1])
                low, high = _bounds(op.target.width)
                self._keep(op.target, rotate(x, pairs, low, high, wide=op.target.wide))
            case Gate():
                gate, up = self._rows(op.source) - op.source.zero, self._rows(op.up)
                self._keep(op.target, times(up, gate, *_bounds(op.target.width)))
            case Pool():
                total = self._rows(op.source)[: self.length].sum(axis=0, keepdims=True)
                self._keep(op.target, _rescaled(total, op.rescale(self.length), op.target))
            case Attention():
                self._attention(op)

    def _rows(self, tensor: Tensor) -> Ints:
        """Return a tensor's rows, [rows, columns]."""
        return self.held[tensor.buffer][: tensor.rows or None]

    def _keep(
        self, target: Tensor, y: NDArray[Any], *, residual: bool = False, row: int = 0
    ) -> None:
        """Store rows of a tensor in its buffer from ``row`` on, or add them if ``residual``."""
        y = y.astype(np.int64)
        if residual:
            y = saturate16(self.held[target.buffer][row : row + len(y)] + y).astype(np.int64)
        whole = np.zeros((max(target.rows, len(y)), target.columns), np.int64)
        if row:
            whole[:] = self.held[target.buffer]
        whole[row : row + len(y)] = y
        self.held[target.buffer] = whole
        # Rows before ``row`` are loaded, not computed.
        self.found[target.name] = np.concatenate([np.zeros_like(whole[:row]), whole[row:]])
        if target.home is Home.SOURCE:
            self.cache.store_source(target.name, whole)

    def _embedding(self, op: Embedding) -> None:
        tokens = self.held[self.model.input.buffer]
        self._keep(op.target, _rescaled(op.words[tokens], op.rescale, op.target))
        if op.positions is not None:
            self._keep(op.target, op.positions[self.places], residual=True)

    def _linear(self, op: Linear) -> None:
        sums = multiply(self._rows(op.source), op.weight, op.source.zero)
        if op.low_rank is not None:
            self._linear(op.low_rank.first)
            sums = sums + multiply(self._rows(op.low_rank.first.target), op.low_rank.weight)
        target, rescale = op.target, op.rescale
        if op.factors:
            by = times_factor(rescale.multiplier, rescale.shift, *self.factors)
            rescale = Rescale(rescale.bias, *by)
        if op.table is None:
            y = _rescaled(sums, rescale, target, floor=target.zero if op.relu else None)
        else:
            bounds = _bounds(target.width)
            indices = _requantized(sums, rescale, 0, *(_bounds(WIDE) if op.polynomial else bounds))
            y = (
                evaluate_table(op.table, indices, *bounds)
                if op.polynomial
                else lookup(op.table, indices)
            )
        self._keep(target, y, residual=op.residual, row=op.row)

    def _attention(self, op: Attention) -> None:
        count, dim = len(self._rows(op.query)), op.head_dim
        low_high = _bounds(OPERAND_BITS if op.query.wide else op.query.width)
        product = multiply_wide if op.key.wide else multiply
        keys = self._heads(op.key, op.key_dim)  # [kv_heads, all, key_dim]
        values = self._heads(op.value, dim)  # [kv_heads, all, head_dim]
        if op.block:
            values = _in_blocks(values, op.block)
        elif op.kv_bits < BITS:
            values = upper(values, op.kv_bits)
        queries = self._split(op.query, op.key_dim)  # [heads, n, key_dim]
        seen = attended(op, self.cache, count, keys.shape[1])
        # Padding after an inference's last token is not attended to.
        seen = seen & (np.arange(keys.shape[1]) < keys.shape[1] - count + self.length)
        scores, matrices, contexts = [], [], []
        for index, head in enumerate(op.heads):
            keyed = keys[index // op.group]
            if op.kv_bits < BITS:
                sums = score_sums(queries[index], keyed, op.kv_bits, op.full_width_key_columns)
            else:
                sums = product(queries[index], keyed.T)
            part = op.scores if op.scores.per_tensor else op.scores.columns(index, 1)
            scores.append(_requantized(sums, part, 0, *_bounds(WIDE)))
            context = head.context
            if op.deferred:
                p, *factors = row_weights(scores[-1], seen)  # Q0.24
                by = times_factor(context.multiplier, context.shift, *factors)
                context = Rescale(context.bias, *by)
            else:
                p = softmax(scores[-1], seen)  # Q0.24
            if head.diagonal is not None:
                p = p + head.diagonal * np.eye(count, dtype=np.int64)
            zero = op.probability_zero
            matrices.append(_requantized(p, head.probabilities, zero, *low_high))
            sums = multiply(matrices[-1], values[index // op.group], zero)
            contexts.append(_requantized(sums, context, 0, *_bounds(op.target.width)))
        self.found[f"{op.prefix}.scores"] = np.array(scores)
        self.found[f"{op.prefix}.probabilities"] = np.array(matrices)
        self._keep(op.target, np.concatenate(contexts, axis=1), residual=op.residual)

    def _split(self, tensor: Tensor, width: int) -> Ints:
        """Return rows [n, heads * width] as [heads, n, width]."""
        source = tensor.home is Home.SOURCE
        x = self.cache.source_rows(tensor.name) if source else self._rows(tensor)
        return x.reshape(len(x), -1, width).transpose(1, 0, 2)

    def _heads(self, tensor: Tensor, width: int) -> Ints:
        """Return keys or values by head, including those of all earlier tokens if cached."""
        heads = self._split(tensor, width)
        return self.cache.append(tensor.name, heads) if tensor.home is Home.CACHE else heads


def _in_blocks(values: Ints, block: int) -> Ints:
    """Return values [heads, n, head_dim] after rounding to shared exponents of blocks in a row."""
    heads, n, width = values.shape
    rows = values.transpose(1, 0, 2).reshape(n, heads * width)
    return blocks.rounded(rows, block).reshape(n, heads, width).transpose(1, 0, 2)


def _rescaled(x: NDArray[Any], by: Rescale, target: Tensor, floor: int | None = None) -> Ints:
    """Return sums requantized to a tensor, clamped from below at ``floor``."""
    low, high = _bounds(target.width)
    return _requantized(x, by, target.zero, low if floor is None else floor, high)


def _requantized(x: NDArray[Any], by: Rescale, zero: int, low: int, high: int) -> Ints:
    return requantize(x, by.bias, by.multiplier, by.shift, zero, low, high).astype(np.int64)
