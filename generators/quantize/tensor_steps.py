"""Quantization scales of a model's tensors and weights, from their values in calibration.

Scales are static. Weights are symmetric INT8, activations INT8 (Jacob et al. 2018), the residual
stream INT16 (Bondarenko et al. 2021).
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from math import ceil

import numpy as np

from celosia.arch.config import Config
from celosia.arch.functions import FUNCTIONS, Function, int8_table
from celosia.arch.norm import VALUE_FRACTION
from celosia.arch.polynomial import function_table
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.builder import network
from celosia.generators.graph.network import (
    Attention,
    Description,
    Home,
    Linear,
    Norm,
    Value,
)
from celosia.generators.graph.operations import TIMES_STEPS
from celosia.generators.graph.tensors import WIDE, Ints, Tensor
from celosia.generators.quantize.balance import column_gains, useful_range
from celosia.generators.quantize.calibrate import Calibration, Range
from celosia.generators.quantize.keys import HeadSteps
from celosia.generators.quantize.options import MIXED, NARROW_BITS, Quantization
from celosia.generators.quantize.steps import best_step, best_steps, wide_scale
from celosia.generators.reference.floats import FUNCTION_NAMES
from celosia.sim.matmul import WIDE_UNIT
from celosia.sim.requantize import INT16_MAX

_LARGEST_BIAS = float(1 << 30)
_POSITIONS = ("positions", "source.positions")
_TABLES = ("words", "types", "positions", "class_token")
_STREAM = ("_sum", "_norm")
"""Ends of the names of the residual stream's values after the embedding."""


class Steps:
    """Chooses the quantization scales of a model's tensors and weights.

    ``config`` determines the width of operands, and whether they have zero points. If ``config`` is
    None, operands are INT8 without zero points.
    """

    def __init__(
        self,
        model: Description,
        weights: Weights,
        calibration: Calibration,
        options: Quantization,
        config: Config | None = None,
    ):
        self.model, self.weights, self.options = model, weights, options
        self.calibration, self.policy = calibration, calibration.policy
        self.graph = network(model)
        self.balance = self.policy.balance if options.balance is None else options.balance
        self.operand_width = NARROW_BITS if config is None else config.array.operand_width
        self.operand_max = (1 << self.operand_width - 1) - 1
        self.operand_min = -self.operand_max - 1
        self.zero_points = config is not None and config.array.zero_points
        self.stream_scale = wide_scale(self._stream_sizes())
        shares = [share for head in calibration.heads.values() for share in head]
        self.probability_zero = self._zero(shares if model.shaped else [Range(0.0, 1.0)])
        """Zero point of probabilities."""
        self._tensors: dict[tuple[str, int], Tensor] = {}

    @cached_property
    def heads(self) -> HeadSteps:
        """The object that chooses the scales of the columns of queries, keys and values."""
        return HeadSteps(self.model, self.calibration, self.options, self.balance)

    def tensor(self, value: Value) -> Tensor:
        """Return the integer :class:`Tensor` (shape, scales, zero point) for a float tensor."""
        key = value.name, value.rows
        if key not in self._tensors:
            self._tensors[key] = self._make(value)
        return self._tensors[key]

    def _make(self, value: Value) -> Tensor:
        """Return a new tensor for a value of the float graph."""
        prefix, _, kind = value.name.rpartition(".")
        # The output has one name, whatever it is made of.
        name = "output" if kind == "raw_output" else value.name
        rows, width = value.rows or self.graph.rows, self.operand_width
        tensor = Tensor(name, value.buffer, rows, value.columns, 1.0, 0, width, home=value.home)
        if value.home is Home.STREAM:
            return replace(tensor, scale=self._stream_step(value), width=WIDE)
        if value == self.graph.output:
            size = self.calibration.ranges[value.name].size
            return replace(tensor, scale=wide_scale([size]), width=WIDE)
        match kind:
            case "input":
                return self._input(tensor)
            case "embedding":
                return replace(tensor, scale=self._embedding_step(), width=WIDE)
            case "query" | "key" | "query_sums" | "key_sums" if self.policy.by_head:
                wide = self._is_wide(value.name.removesuffix("_sums"))
                return self.heads.projected(tensor, wide=wide)
            case "query_heads" | "key_heads":
                return self.heads.unnormed(tensor)
            case "query_normed" | "key_normed":
                return self.heads.normed(tensor)
            case "value" if self.policy.by_head:
                return self.heads.value(tensor)
            case "context" if self.policy.by_head and self.options.alike:
                return self._context(tensor, prefix)
            case "active":
                return self._activated(tensor, kind)
            case "up":
                hidden = self.tensor(Value(f"{prefix}.hidden", value.columns)).steps
                gains = hidden / (TIMES_STEPS * self._gate_scale(tensor, prefix))
                return replace(tensor, gains=gains, width=WIDE)
            case "hidden":
                return self._hidden(tensor, prefix)
            case "attention_input" | "mlp_input" | "final" if self._folds:
                return self._folded(tensor)
        return self._plain(tensor, kind)

    def _plain(self, tensor: Tensor, kind: str) -> Tensor:
        """Return a symmetric tensor, in which each column has its range if it is balanced."""
        gains = None
        # Without a projection values are the block's input itself, whose columns are summed.
        summed = kind == "attention_input" and not self.model.values
        if kind in self.policy.balanced and self.balance and not summed:
            gains = column_gains(self.calibration.largest(tensor.name), self.balance)
        width = WIDE if self._is_wide(tensor.name) else tensor.width
        return replace(tensor, scale=self._step(tensor.name, gains), gains=gains, width=width)

    def _step(self, name: str, gains: Floats | None = None) -> float:
        """Return the scale of a symmetric tensor whose columns are divided by ``gains``."""
        values = self.calibration.values(name)
        if gains is not None and self.policy.searched:
            values = values / gains
        return self._fitting(name, values)

    def _fitting(self, name: str, values: Floats) -> float:
        """Return the scale of a symmetric tensor for values of its integers times the scale."""
        if self._is_wide(name):
            return wide_scale([float(np.abs(values).max()) or 1.0])
        return best_step(values, self.operand_max, self.policy.clips)

    def _is_wide(self, name: str) -> bool:
        """Return whether a tensor is INT16 because activations are mixed."""
        wide = self.policy.wide_parts
        return self.options.activations == MIXED and name.rpartition(".")[2] in wide

    def _input(self, tensor: Tensor) -> Tensor:
        """Return the host's input, which has no scale if it is token numbers."""
        if self.graph.reads_tokens:
            return replace(tensor, width=2 * WIDE)
        bounds = self.calibration.ranges["input"]
        zero = self._zero([bounds])
        return replace(tensor, scale=self._scale(bounds, zero), zero=zero)

    def _embedding_step(self) -> float:
        """Return the step of embedded tokens that are not on the residual stream.

        Rows that are looked up in trained tables have room for the largest possible sum.
        """
        if "words" not in self.weights:
            return wide_scale([self.calibration.ranges["embedding"].size])
        tables = [np.atleast_2d(self.weights[name]) for name in _TABLES if name in self.weights]
        bound: float = np.sum([np.abs(table).max(axis=0) for table in tables], axis=0).max()
        return (bound or 1.0) / INT16_MAX

    def _stream_sizes(self) -> list[float]:
        """Return the largest magnitudes of the tensors on the residual stream."""
        ranges, weights = self.calibration.ranges, self.weights
        sizes = [bounds.size for name, bounds in ranges.items() if name.endswith(_STREAM)]
        if self.graph.reads_tokens:
            places = [np.abs(weights[name]).max() for name in _POSITIONS if name in weights]
            sizes.append(np.abs(weights["words"]).max() + max(places, default=0.0))
        elif "embedding_norm" not in ranges:
            sizes.append(ranges["embedding"].size)
        return sizes

    def _stream_step(self, value: Value) -> float:
        """Return the step of the residual stream: one for each layer if no norm keeps its size."""
        prefix, ranges = value.name.rpartition(".")[0], self.calibration.ranges
        names = [f"{prefix}.{name}" for name in ("stream", "attention_sum", "mlp_sum")]
        if not prefix:
            names = [value.name]
        sizes = [ranges[name].size for name in names if name in ranges]
        if self.model.norm != "none" or not sizes:
            return self.stream_scale
        return wide_scale(sizes)

    @property
    def _folds(self) -> bool:
        """True if gains of norms are included in the weights after them."""
        normed = self.model.placement == "pre" and self.model.final_norm
        wanted = self.options.folded and self.policy.searched
        return wanted and normed and self.model.norm == "rmsnorm"

    def _folded(self, target: Tensor) -> Tensor:
        """Return a norm's output in steps of the norm's gains."""
        norm = target.name.replace("_input", "_norm").replace("final", "final_norm")
        gamma = self.weights[f"{norm}.weight"]
        if self.options.deferred:
            # A row's factor turns integers of the stream, times its columns, into Q.16 values.
            step = self.deferred_norm_divisor(target.name) * self.model.dim / (1 << VALUE_FRACTION)
            return replace(target, scale=step, gains=gamma)
        gained = gamma != 0
        values = self.calibration.values(target.name)[:, gained] / gamma[gained]
        width = WIDE if self._is_wide(target.name) else target.width
        step = self._fitting(target.name, values)
        return replace(target, scale=step, gains=gamma, width=width)

    def deferred_norm_divisor(self, name: str) -> float:
        """Return the divisor with which a deferred norm converts the residual stream to INT8.

        The divisor is the scale of the norm's output ``name`` divided by the scale of the residual
        stream. The row's normalization factor is applied later, in the next matrix product.
        """
        nodes = [node for node in self.graph.all_nodes if isinstance(node, Norm)]
        (source,) = (node.source.name for node in nodes if node.target.name == name)
        return self._step(source) / self.stream_scale

    def _context(self, target: Tensor, prefix: str) -> Tensor:
        """Return attention's output, in proportion to the values' steps."""
        model = self.model
        by_head = self._tensors[f"{prefix}.value", 0].steps.reshape(model.kv_heads, -1)
        gains = np.repeat(by_head, model.group, axis=0).ravel()
        width = WIDE if self._is_wide(target.name) else target.width
        return replace(target, scale=self._step(target.name, gains), gains=gains, width=width)

    def _activated(self, target: Tensor, kind: str) -> Tensor:
        """Return the output of an activation function."""
        bounds = self.calibration.bounds(target.name)
        if kind == "hidden" and self.policy.zeros_in_biases:
            scale, zero = self._around(bounds)
        else:
            zero = self._function_zero
            scale = self._scale(bounds, zero)
        return replace(target, scale=scale, zero=zero)

    def _hidden(self, target: Tensor, prefix: str) -> Tensor:
        """Return the input of an MLP's second layer: an activation, or a product with one.

        The other factor of a product must fit the INT16 before it.
        """
        if not self.model.gated:
            return self._activated(target, "hidden")
        largest = self.calibration.largest(f"{prefix}.up")
        least = largest * TIMES_STEPS * self._gate_scale(target, prefix) / INT16_MAX
        if not self.balance:
            least[:] = least.max()
        gains = np.maximum(self._plain(target, "hidden").steps, least)
        return replace(target, gains=np.asarray(gains))

    def _gate_scale(self, hidden: Tensor, prefix: str) -> float:
        return self.tensor(Value(f"{prefix}.active", hidden.columns)).scale

    @cached_property
    def _function_zero(self) -> int:
        """Zero point of activations that is an operand of instructions, the same in all layers."""
        kind = ".active" if self.model.gated else ".hidden"
        names = [name for name in self.calibration.ranges if name.endswith(kind)]
        ranges = [self.calibration.bounds(name) for name in names]
        if not self.model.gated:
            return self._zero(ranges)
        return max(self._common_zero(ranges), self.operand_min + 1)

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the quantization scale of each output's weights in a linear layer, [n].

        ``scaled`` [n, k] are the float weights, each times the scale of its input. An output whose
        weights are all 0 gets its scale from ``out`` [n]. Each scale is at least ``abs(bias) /
        2**30``, so that the integer bias fits 32 bits.
        """
        columns = scaled.T if self.options.per_channel else scaled.reshape(-1, 1)
        steps = best_steps(columns, self.operand_max, self.policy.clips)
        steps = np.where(columns.any(axis=0), steps, out)
        return np.asarray(np.maximum(steps, np.abs(bias) / _LARGEST_BIAS))

    def inputs(self, value: Value) -> Floats | None:
        """Return sample rows [count, columns] of a tensor, divided by the scales of its columns.

        Of N stored rows, the result has every k-th, where k is ``max(1, N // policy.samples)``. The
        result is None if no rows of the tensor are stored.
        """
        rows = self.calibration.rows.get(value.name)
        if rows is None:
            return None
        apart = max(1, len(rows) // self.policy.samples)
        return np.asarray(rows[::apart] / self.tensor(value).steps)

    def activation(self, node: Linear, target: Tensor) -> tuple[float, float, Ints | None]:
        """Return (input scale, offset, table) of a linear layer's quantized activation function.

        The caller adds ``offset``, a real number, to the layer's bias. For INT8 inputs, the table
        has an output for each input. For INT16 inputs, it has coefficients of polynomials. If the
        requantization applies the ReLU, the table is None.
        """
        assert node.sums is not None
        if node.activation == "relu" and self.policy.relu_in_sums:
            return target.scale, 0.0, None
        function, name = FUNCTIONS[FUNCTION_NAMES[node.activation]], node.sums.name
        wide = self.options.wide(node.activation)
        scale, zero = self._function_input(function, name, target.scale, wide=wide)
        if wide:
            return scale, 0.0, function_table(function, scale, target.scale, target.zero)
        operands = target.zero, self.operand_width
        return scale, scale * zero, int8_table(function, scale, zero, target.scale, *operands)

    def _function_input(
        self, function: Function, name: str, after: float, *, wide: bool
    ) -> tuple[float, int]:
        """Return scale and zero point of a function's inputs, whose outputs have scale ``after``.

        Inputs are INT16, with the zero point 0, if ``wide``.
        """
        bounds = self.calibration.bounds(name)
        if self.policy.narrowed:
            bounds = useful_range(function, bounds, after)
        if wide:
            return max(-bounds.low, bounds.high) / INT16_MAX or 1.0, 0
        return self._around(bounds) if self.policy.narrowed else (self._step(name), 0)

    def products(self, node: Attention) -> tuple[Floats, Floats]:
        """Return two arrays, the scales and the offsets of the products of queries and keys.

        An offset is a real number that is added to all products of a head before they become INT16
        scores. Each array is [1] if all heads share a value, otherwise [heads].
        """
        if self.policy.by_head:
            steps = self.heads.keys(node.prefix)
            return steps.product, steps.raised
        query, key = self.tensor(node.query), self.tensor(node.key)
        # Products of INT16 are in units of 256, equation (19).
        unit = WIDE_UNIT if key.wide else 1
        return np.array([unit * query.scale * key.scale]), np.zeros(1)

    def probability_scale(self, node: Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""
        bounds = Range(0.0, 1.0)
        if self.model.shaped:
            bounds = self.calibration.heads[f"{node.prefix}.probabilities"][head]
        elif self.zero_points:
            # One step more than fits: p = 1 saturates, and every other p is exact to half a step.
            return 2.0**-self.operand_width
        return self._scale(bounds, self.probability_zero)

    def _scale(self, bounds: Range, zero: int) -> float:
        """Return the least scale at which a range fits around a zero point."""
        up, down = self.operand_max - zero, zero - self.operand_min
        scale = max(bounds.high / up, -bounds.low / down if down else 0.0)
        return scale or 1.0 / up

    def _around(self, bounds: Range) -> tuple[float, int]:
        """Return the scale and the zero point with which a range fills all integers."""
        scale = (bounds.high - bounds.low) / (self.operand_max - self.operand_min) or 1.0
        return scale, round(self.operand_min - bounds.low / scale)

    def _zero(self, ranges: Iterable[Range]) -> int:
        """Return the zero point of operands, which is 0 if the array subtracts none."""
        return self._common_zero(ranges) if self.zero_points else 0

    def _common_zero(self, ranges: Iterable[Range]) -> int:
        """Return the zero point for which the worst of several ranges, scaled, loses least.

        Without any range half of the integers are below it.
        """
        ends = [(bounds.low, bounds.high) for bounds in ranges]
        shares = [-low / (high - low) for low, high in ends if high > low]
        least = ceil(max(shares, default=0.5) * (self.operand_max - self.operand_min))
        return min(self.operand_min + least, self.operand_max - 1)
