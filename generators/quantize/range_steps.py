"""Quantization scales of an encoder's tensors, from the ranges found in calibration.

Weights are symmetric INT8 with one scale per output channel, or one per tensor if the option
``per_channel`` is false. Activations are INT8 with one scale per tensor (Jacob et al. 2018). They
are symmetric, but three kinds may be asymmetric if the configuration has zero points: the model's
input, the hidden tensors of the MLPs, and the probabilities. The residual stream is INT16
(Bondarenko et al. 2021). It has one scale for the whole model, or one for each layer if the model
has no norms.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.functions import Function
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.network import Attention, Home, Value, network
from celosia.generators.graph.tensors import WIDE, Tensor
from celosia.generators.quantize.balance import column_gains, useful_range
from celosia.generators.quantize.calibrate import Calibration, Range
from celosia.generators.quantize.options import ENCODER_BALANCE, Quantization
from celosia.generators.quantize.tensor_steps import Steps, wide_scale
from celosia.sim.matmul import WIDE_UNIT
from celosia.sim.requantize import INT16_MAX

_LARGEST_BIAS = float(1 << 30)


class RangeSteps(Steps[ModelDescription]):
    """Chooses the scales and zero points of an encoder's tensors, and the scales of its weights."""

    zeros_in_biases = False
    relu_in_sums = True
    wide_parts = ("attention_input", "query", "key", "context")

    def __init__(
        self,
        model: ModelDescription,
        weights: Weights,
        calibration: Calibration,
        config: Config,
        options: Quantization,
    ):
        rows, width = calibration.rows, config.array.operand_width
        super().__init__(model, weights, rows, options, width, ENCODER_BALANCE)
        self.zero_points = config.array.zero_points
        self.ranges, self.columns, self.heads = (
            calibration.ranges,
            calibration.columns,
            calibration.heads,
        )
        self.output = network(model).output
        ends = ("_sum", "_norm") + (() if model.embedding_norm else ("embedding",))
        self.stream_scale = wide_scale(
            [self.ranges[name].size for name in self.ranges if name.endswith(ends)]
        )
        hidden = [self.ranges[name] for name in self.ranges if name.endswith(".hidden")]
        self.hidden_zero = self._zero(hidden)
        self.probability_zero = self._zero(
            [size for sizes in calibration.heads.values() for size in sizes]
            if model.shaped
            else [Range(0.0, 1.0)]
        )

    def _make(self, value: Value) -> Tensor:
        model, kind = self.model, value.name.rpartition(".")[2]
        if value.home is Home.STREAM:
            return self._made(value, self._stream_step(value), width=WIDE)
        if kind == "input":
            zero = self._zero([self.ranges["input"]])
            return self._made(value, self._scale(self.ranges["input"], zero), zero)
        if kind == "embedding" and model.embedding == "tokens":
            return self._made(value, self._largest_row() / INT16_MAX, width=WIDE)
        size = self.ranges[value.name].size
        if kind == "embedding" or value == self.output:
            return self._made(value, wide_scale([size]), width=WIDE)
        if kind == "hidden":
            scale = self._scale(self.ranges[value.name], self.hidden_zero)
            return self._made(value, scale, self.hidden_zero)
        if self._is_wide(value.name):
            return self._balanced(self._made(value, wide_scale([size]), width=WIDE), kind)
        return self._balanced(self._made(value, size / self.operand_max), kind)

    def _balanced(self, tensor: Tensor, kind: str) -> Tensor:
        """Return a tensor in which each column of a block's input has its range."""
        # Without a projection values are the block's input itself, whose columns are summed.
        summed = kind == "attention_input" and not self.model.values
        if kind not in ("attention_input", "mlp_input") or summed or not self.balance:
            return tensor
        return replace(tensor, gains=column_gains(self.columns[tensor.name], self.balance))

    def _stream_step(self, value: Value) -> float:
        """Return the step of the residual stream: one for each layer if no norm keeps its size."""
        prefix = value.name.rpartition(".")[0]
        names = [f"{prefix}.{name}" for name in ("stream", "attention_sum", "mlp_sum")]
        if not prefix:
            names = [value.name]
        sizes = [self.ranges[name].size for name in names if name in self.ranges]
        if self.model.norm != "none" or not sizes:
            return self.stream_scale
        return wide_scale(sizes) or 1.0

    def _made(self, value: Value, scale: float, zero: int = 0, width: int = 0) -> Tensor:
        rows, width = value.rows or self.model.sequence, width or self.operand_width
        # The output has one name, whatever it is made of.
        name = "output" if value.name == "raw_output" else value.name
        return Tensor(name, value.buffer, rows, value.columns, scale, zero, width, home=value.home)

    def _zero(self, ranges: Iterable[Range]) -> int:
        """Return the common zero point of several ranges."""
        ends = ((bounds.low, bounds.high) for bounds in ranges)
        return self._common_zero(ends, 0.5) if self.zero_points else 0

    def _scale(self, bounds: Range, zero: int) -> float:
        """Return the least scale at which a range fits around a zero point."""
        up, down = self.operand_max - zero, zero - self.operand_min
        scale = max(bounds.high / up, -bounds.low / down if down else 0.0)
        return scale or 1.0 / up

    def _largest_row(self) -> float:
        """Return the largest possible magnitude of a sum of rows of the trained tables."""
        names = ("words", "types", "positions", "class_token")
        tables = [np.atleast_2d(self.weights[name]) for name in names if name in self.weights]
        bound: float = np.sum([np.abs(table).max(axis=0) for table in tables], axis=0).max()
        return bound or 1.0

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the scales [n] of a linear layer's weights, one for each of its n outputs.

        ``scaled`` [n, k] are the float weights times the scales of their inputs. ``bias`` [n] is
        the float bias, and ``out`` [n] are the scales of the outputs. If the option ``per_channel``
        is false, all outputs have the same scale, the largest one. If all weights that share a
        scale are 0, the scales ``out`` are used. Scales are at least ``abs(bias) / 2**30``, so that
        the integer bias does not exceed 2**30.
        """
        largest = np.abs(scaled).max(axis=1)  # [n]
        if not self.options.per_channel:
            largest[:] = largest.max()
        steps = np.where(largest > 0, largest / self.operand_max, out)
        return np.asarray(np.maximum(steps, np.abs(bias) / _LARGEST_BIAS))

    def _function_input(
        self, function: Function, name: str, after: float, activation: str
    ) -> tuple[float, int]:
        bounds = useful_range(function, self.ranges[name], after)
        if self.options.wide(activation):
            return max(-bounds.low, bounds.high) / INT16_MAX or 1.0, 0
        scale = (bounds.high - bounds.low) / (self.operand_max - self.operand_min) or 1.0
        return scale, round(self.operand_min - bounds.low / scale)

    def products(self, node: Attention) -> tuple[Floats, Floats]:
        """Return (scale of query-key products, offset added to them), two arrays of one element.

        The offset is 0.
        """
        query, key = self.tensor(node.query), self.tensor(node.key)
        # Products of INT16 are in units of 256, equation (19).
        unit = WIDE_UNIT if key.wide else 1
        return np.array([unit * query.scale * key.scale]), np.zeros(1)

    def probability_scale(self, node: Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""
        if self.model.shaped:
            bounds = self.heads[f"{node.prefix}.probabilities"][head]
            return self._scale(bounds, self.probability_zero)
        if self.zero_points:
            # One step more than fits: p = 1 saturates, and every other p is exact to half a step.
            return 2.0**-self.operand_width
        return self._scale(Range(0.0, 1.0), self.probability_zero)
