"""Quantization scales of an encoder's tensors, from the ranges found in calibration.

Weights are symmetric INT8 with one scale per output channel, or per tensor. Activations are INT8
with one scale per tensor. Activations are symmetric, except for the input, hidden layers and
probabilities if the configuration has zero points. The residual stream is INT16 with one scale for
the whole model, or for each layer if no norm keeps its size (Jacob et al. 2018; the wide residual
after Bondarenko et al. 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.functions import FUNCTIONS, int8_table
from celosia.arch.polynomial import function_table
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.network import Attention, Home, Linear, Value, network
from celosia.generators.graph.tensors import WIDE, Ints, Tensor
from celosia.generators.quantize.balance import column_gains, useful_range
from celosia.generators.quantize.calibrate import Range, Ranges
from celosia.generators.quantize.options import ENCODER_BALANCE, MIXED, Quantization
from celosia.generators.reference.floats import FUNCTION_NAMES
from celosia.sim.matmul import WIDE_UNIT
from celosia.sim.requantize import INT16_MAX

WIDE_HEADROOM = 2.0
"""Ratio by which an INT16 value may exceed calibration's largest before it saturates."""
_ATTENTION = ("attention_input", "query", "key", "context")
"""Tensors of attention that are INT16 if activations are mixed."""
_LARGEST_BIAS = float(1 << 30)


class RangeSteps:
    """Chooses the scales and zero points of an encoder's tensors, and the scales of its weights."""

    zeros_in_biases = False
    whole = 0

    def __init__(
        self,
        model: ModelDescription,
        weights: Weights,
        ranges: Ranges,
        config: Config,
        options: Quantization,
    ):
        self.model, self.weights, self.config, self.options = model, weights, config, options
        self.balance = ENCODER_BALANCE if options.balance is None else options.balance
        self.ranges, self.columns, self.heads = ranges.tensors, ranges.columns, ranges.heads
        self.rows = ranges.rows
        self.output = network(model).output
        ends = ("_sum", "_norm") + (() if model.embedding_norm else ("embedding",))
        stream = [self.ranges[name].size for name in self.ranges if name.endswith(ends)]
        self.stream_scale = WIDE_HEADROOM * max(stream) / INT16_MAX
        hidden = [self.ranges[name] for name in self.ranges if name.endswith(".hidden")]
        self.hidden_zero = self._common_zero(hidden)
        self.probability_zero = self._common_zero(
            [size for sizes in ranges.heads.values() for size in sizes]
            if model.shaped
            else [Range(0.0, 1.0)]
        )

    def tensor(self, value: Value) -> Tensor:
        """Return the integer tensor for a value of the float graph."""
        model, kind = self.model, value.name.rpartition(".")[2]
        if value.home is Home.STREAM:
            return self._made(value, self._stream_step(value), width=WIDE)
        if kind == "input":
            zero = self._common_zero([self.ranges["input"]])
            return self._made(value, self._scale(self.ranges["input"], zero), zero)
        if kind == "embedding" and model.embedding == "tokens":
            return self._made(value, self._largest_row() / INT16_MAX, width=WIDE)
        if kind == "embedding" or value == self.output:
            scale = WIDE_HEADROOM * self.ranges[value.name].size / INT16_MAX
            return self._made(value, scale, width=WIDE)
        if kind == "hidden":
            scale = self._scale(self.ranges[value.name], self.hidden_zero)
            return self._made(value, scale, self.hidden_zero)
        size = self.ranges[value.name].size
        if self.options.activations == MIXED and kind in _ATTENTION:
            made = self._made(value, WIDE_HEADROOM * size / INT16_MAX, width=WIDE)
        else:
            made = self._made(value, size / self.config.operand_max)
        # Without a projection values are the block's input itself, whose columns are summed.
        summed = kind == "attention_input" and not model.values
        if kind in ("attention_input", "mlp_input") and not summed and self.balance:
            made = replace(made, gains=column_gains(self.columns[value.name], self.balance))
        return made

    def _stream_step(self, value: Value) -> float:
        """Return the step of the residual stream: one for each layer if no norm keeps its size."""
        prefix = value.name.rpartition(".")[0]
        names = [f"{prefix}.{name}" for name in ("stream", "attention_sum", "mlp_sum")]
        if not prefix:
            names = [value.name]
        sizes = [self.ranges[name].size for name in names if name in self.ranges]
        if self.model.norm != "none" or not sizes:
            return self.stream_scale
        return WIDE_HEADROOM * max(sizes) / INT16_MAX or 1.0

    def _made(self, value: Value, scale: float, zero: int = 0, width: int = 0) -> Tensor:
        rows, width = value.rows or self.model.sequence, width or self.config.array.operand_width
        # The output has one name, whatever it is made of.
        name = "output" if value.name == "raw_output" else value.name
        return Tensor(name, value.buffer, rows, value.columns, scale, zero, width, home=value.home)

    def _common_zero(self, ranges: Sequence[Range]) -> int:
        """Return the zero point for which the worst of several ranges, scaled, loses least."""
        if not self.config.array.zero_points:
            return 0
        low, high = self.config.operand_min, self.config.operand_max
        share = max((-r.low / (r.high - r.low) for r in ranges if r.high > r.low), default=0.5)
        return min(low + math.ceil(share * (high - low)), high - 1)

    def _scale(self, bounds: Range, zero: int) -> float:
        """Return the least scale at which a range fits around a zero point."""
        up, down = self.config.operand_max - zero, zero - self.config.operand_min
        scale = max(bounds.high / up, -bounds.low / down if down else 0.0)
        return scale or 1.0 / up

    def _largest_row(self) -> float:
        """Return the largest possible magnitude of a sum of rows of the trained tables."""
        names = ("words", "types", "positions", "class_token")
        tables = [np.atleast_2d(self.weights[name]) for name in names if name in self.weights]
        bound: float = np.sum([np.abs(table).max(axis=0) for table in tables], axis=0).max()
        return bound or 1.0

    def inputs(self, value: Value) -> Floats | None:
        """Return samples [count, columns] of a tensor, divided by its scales; None if not kept."""
        rows = self.rows.get(value.name)
        return None if rows is None else rows / self.tensor(value).steps

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the scale of each output [n] for weights [n, k] times their inputs' scales.

        A channel of zeros has the output's scale, so that the channel's bias stays exact.
        """
        largest = np.abs(scaled).max(axis=1)  # [n]
        if not self.options.per_channel:
            largest[:] = largest.max()
        steps = np.where(largest > 0, largest / self.config.operand_max, out)
        return np.asarray(np.maximum(steps, np.abs(bias) / _LARGEST_BIAS))

    def activation(self, node: Linear, target: Tensor) -> tuple[float, float, Ints | None]:
        """Return (input scale, offset, table) of an activation function.

        ReLU has no table, as requantization computes ReLU.
        """
        assert node.sums is not None
        if node.activation == "relu":
            return target.scale, 0.0, None
        function = FUNCTIONS[FUNCTION_NAMES[node.activation]]
        bounds = useful_range(function, self.ranges[node.sums.name], target.scale)
        if self.options.wide(node.activation):
            scale = max(-bounds.low, bounds.high) / INT16_MAX or 1.0
            return scale, 0.0, function_table(function, scale, target.scale, target.zero)
        low, high = self.config.operand_min, self.config.operand_max
        scale = (bounds.high - bounds.low) / (high - low) or 1.0
        zero = round(low - bounds.low / scale)
        width = self.config.array.operand_width
        table = int8_table(function, scale, zero, target.scale, target.zero, width)
        # The zero point of the table's inputs is a part of the bias: layers may differ in it.
        return scale, scale * zero, table

    def products(self, node: Attention) -> tuple[Floats, Floats]:
        """Return the scale and the offset of the products of queries and keys, [1] each."""
        query, key = self.tensor(node.query), self.tensor(node.key)
        # Products of INT16 are in units of 256, equation (19).
        unit = WIDE_UNIT if key.wide else 1
        return np.array([unit * query.scale * key.scale]), np.zeros(1)

    def probability_scale(self, node: Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""
        if self.model.shaped:
            bounds = self.heads[f"{node.prefix}.probabilities"][head]
            return self._scale(bounds, self.probability_zero)
        if self.config.array.zero_points:
            # One step more than fits: p = 1 saturates, and every other p is exact to half a step.
            return 2.0**-self.config.array.operand_width
        return self._scale(Range(0.0, 1.0), self.probability_zero)
