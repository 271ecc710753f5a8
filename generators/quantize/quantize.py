"""From a float model to integers: scales and multipliers by ranges that calibration found.

Weights are symmetric INT8 with one scale per output channel, or per tensor; activations are INT8
with one scale per tensor, symmetric but for the input, the hidden layer and the probabilities where
the configuration has zero points; the residual stream is INT16 with one scale for the whole model
(Jacob et al. 2018; the wide residual after Bondarenko et al. 2021).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from arch.config import Config
from arch.errors import InputError
from arch.functions import (
    FUNCTIONS,
    OCTAVE_FRACTION,
    PROBABILITY_FRACTION,
    int8_table,
)
from arch.isa import IMMEDIATE_WIDTH
from generators.frontend.description import ModelDescription
from generators.frontend.weights import Weights
from generators.graph import (
    Attention,
    Convert,
    Head,
    Ints,
    Linear,
    Norm,
    Op,
    Pool,
    QuantizedModel,
    Rescale,
    Tensor,
    quantize,
    rescale_of,
)
from generators.quantize.balance import column_gains, useful_range
from generators.quantize.calibrate import Progress, Range, Ranges, Samples, calibrate
from generators.quantize.tensors import Tensors
from generators.reference.float_model import FUNCTION_NAMES
from sim.norm import norm_parameters, quantize_eps

_LARGEST_BIAS = float(1 << 30)


@dataclass(frozen=True)
class Quantization:
    """How integers are chosen."""

    percentile: float = 100.0
    """Share of a tensor's values in calibration that its range covers (percent)."""
    per_channel: bool = True
    """Whether weights have a scale for each output channel, and not one for each tensor."""
    balance: float = 0.7
    """How far columns that blocks take fill their own ranges, from 0 (one scale) to 1.

    See :func:`generators.quantize.balance.column_gains`."""

    def __post_init__(self) -> None:
        """Check what is not checked elsewhere."""
        if not 0 <= self.balance <= 1:
            raise InputError(f"Balance of columns must be from 0 to 1, not {self.balance}")


def quantize_model(
    model: ModelDescription,
    weights: Weights,
    inputs: Samples,
    config: Config,
    options: Quantization | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """Return a model in the integers of a configuration.

    Raises :class:`InputError` as :func:`calibrate`, and where a number of the
    model cannot be represented.
    """
    options = options or Quantization()
    ranges = calibrate(model, weights, inputs, options.percentile, progress)
    return quantize_calibrated(model, weights, ranges, config, options)


def quantize_calibrated(
    model: ModelDescription,
    weights: Weights,
    ranges: Ranges,
    config: Config,
    options: Quantization | None = None,
) -> QuantizedModel:
    """Return a model in integers by ranges that are known.

    Raises :class:`InputError` where a number of the model cannot be represented.
    """
    return _Quantizer(model, weights, ranges, config, options or Quantization()).run()


class _Quantizer:
    def __init__(
        self,
        model: ModelDescription,
        weights: Weights,
        ranges: Ranges,
        config: Config,
        options: Quantization,
    ):
        self.model, self.weights, self.config, self.options = model, weights, config, options
        self.ranges = ranges
        self.tensors = Tensors(model, weights, ranges, config)

    def run(self) -> QuantizedModel:
        model = self.model
        before, start = self._before()
        layers = tuple(tuple(self._block(f"layers.{layer}")) for layer in range(model.layers))
        after = self._after()
        output = after[-1].target if after else self.tensors.stream("output", model.outputs[0])
        return QuantizedModel(
            description=model,
            input=self.tensors.input(),
            output=output,
            stream=self.tensors.stream("stream"),
            start=start,
            before=tuple(before),
            layers=layers,
            after=tuple(after),
        )

    def _linear(
        self,
        name: str,
        source: Tensor,
        target: Tensor,
        *,
        scale: float = 0.0,
        offset: float = 0.0,
        gain: float = 1.0,
        row: int = 0,
        relu: bool = False,
        table: Ints | None = None,
        residual: bool = False,
    ) -> Linear:
        """Return a linear layer.

        Where a table follows, ``scale`` is that of its inputs and ``offset`` is added to them.
        """
        scale = scale or target.scale
        matrix = gain * self.weights[f"{name}.weight"]  # [n, k]
        bias = gain * self.weights.get(f"{name}.bias", np.zeros(len(matrix))) + offset  # [n]
        if source.gains is not None:
            matrix = matrix * source.gains
        largest = np.abs(matrix).max(axis=1)  # [n]
        if not self.options.per_channel:
            largest[:] = largest.max()
        # A channel of zeros takes the output's own step, so that its bias stays exact.
        steps = np.where(largest > 0, largest / self.config.operand_max, scale / source.scale)
        steps = np.maximum(steps, np.abs(bias) / (source.scale * _LARGEST_BIAS))
        low, high = self.config.operand_min, self.config.operand_max
        weight = np.clip(np.rint(matrix / steps[:, None]), low, high).astype(np.int64).T
        biases = np.rint(bias / (source.scale * steps)).astype(np.int64)
        rescale = rescale_of(biases, source.scale * steps / scale)
        reach = max(source.zero - low, high - source.zero)
        bound = np.abs(weight).sum(axis=0) * reach + np.abs(biases)
        if np.any(bound << np.maximum(rescale.shift, 0) >= 1 << 31):
            raise InputError(
                f"Layer {name} of model {self.model.name} cannot be requantized: its output's "
                f"step {scale:.3g} is too small beside its products' {source.scale:.3g}"
            )
        return Linear(source, target, weight, rescale, row, relu, table, residual)

    def _norm(self, name: str, source: Tensor, target: Tensor) -> Norm:
        gamma = self.weights[f"{name}.weight"]
        beta = self.weights.get(f"{name}.bias", np.zeros(len(gamma)))
        if target.gains is not None:
            gamma, beta = gamma / target.gains, beta / target.gains
        bias, multiplier, shift = norm_parameters(gamma, beta, target.scale)
        rescale = Rescale(
            bias.astype(np.int64), multiplier.astype(np.int64), shift.astype(np.int64)
        )
        eps = quantize_eps(self.model.epsilon, n=self.model.dim, scale=source.scale)
        return Norm(source, target, rescale, self.model.norm == "rmsnorm", eps)

    def _convert(self, source: Tensor, target: Tensor) -> Convert:
        factors = source.scale / target.steps
        return Convert(source, target, rescale_of(np.zeros_like(factors), factors))

    def _before(self) -> tuple[list[Op], Ints | None]:
        model = self.model
        ops: list[Op] = []
        start = None
        embedding = self.tensors.embedding()
        if model.embedding == "linear":
            if model.class_token or model.positions == "learned":
                values = np.zeros((model.sequence, model.dim))
                if model.class_token:
                    values[0] = self.weights["class_token"]
                if model.positions == "learned":
                    values += self.weights["positions"]
                start = quantize(values, embedding)
            row, residual = int(model.class_token), start is not None
            ops.append(
                self._linear("embed", self.tensors.input(), embedding, row=row, residual=residual)
            )
        if model.embedding_norm:
            ops.append(
                self._norm("embedding_norm", embedding, self.tensors.stream("embedding_norm"))
            )
        return ops, start

    def _block(self, prefix: str) -> list[Op]:
        """Return the operations of a layer, from the stream to the stream."""
        model = self.model
        pre = model.norm != "none" and model.placement == "pre"
        post = model.norm != "none" and model.placement == "post"
        ops: list[Op] = []

        def before(name: str, source: Tensor) -> Tensor:
            target = self.tensors.narrow(f"{prefix}.{name}_input", model.dim)
            if model.values or name == "mlp":
                # Without a projection values are this tensor itself, whose columns are summed.
                gains = column_gains(self.ranges.columns[target.name], self.options.balance)
                target = replace(target, gains=gains if self.options.balance else None)
            norm = "norm" if model.parallel else f"{name}_norm"
            if pre:
                ops.append(self._norm(f"{prefix}.{norm}", source, target))
            else:
                ops.append(self._convert(source, target))
            return target

        def after(name: str, source: Tensor, buffer: str) -> Tensor:
            if not post:
                return source
            target = self.tensors.stream(f"{prefix}.{name}_norm", buffer=buffer)
            ops.append(self._norm(f"{prefix}.{name}_norm", source, target))
            return target

        x = before("attention", self.tensors.stream(f"{prefix}.stream"))
        total = self.tensors.stream(f"{prefix}.attention_sum")
        ops += self._attention(prefix, x, total, model.skip)
        if model.parallel:
            residual = True
        else:
            stream = after("attention", total, "stream_normed")
            x = before("mlp", stream)
            residual = model.skip
        buffer = "stream_normed" if post else "stream"
        total = self.tensors.stream(f"{prefix}.mlp_sum", buffer=buffer)
        ops += self._mlp(prefix, x, total, residual)
        after("mlp", total, "stream")
        return ops

    def _attention(self, prefix: str, x: Tensor, total: Tensor, residual: bool) -> list[Op]:
        model = self.model
        gain = self._gain(f"{prefix}.attention_gain")
        width, kv_width = model.heads * model.head_dim, model.kv_heads * model.head_dim
        query = self.tensors.narrow(f"{prefix}.query", width)
        key = self.tensors.narrow(f"{prefix}.key", kv_width)
        value = self.tensors.narrow(f"{prefix}.value", kv_width) if model.values else x
        ops: list[Op] = [
            self._linear(f"{prefix}.query", x, query),
            self._linear(f"{prefix}.key", x, key),
        ]
        if model.values:
            ops.append(self._linear(f"{prefix}.value", x, value))
        target = self.tensors.narrow(f"{prefix}.context", width) if model.output else total
        octaves = math.log2(math.e) * 2.0**OCTAVE_FRACTION / math.sqrt(model.head_dim)
        head = self._shaped_head if model.shaped else self._plain_head
        ops.append(
            Attention(
                query=query,
                key=key,
                value=value,
                target=target,
                head_dim=model.head_dim,
                scores=rescale_of(0, query.scale * key.scale * octaves),
                probability_zero=self.tensors.probability_zero,
                heads=tuple(
                    head(prefix, index, value.scale, target.scale, 1.0 if model.output else gain)
                    for index in range(model.heads)
                ),
                residual=residual and not model.output,
                variable=model.variable,
            )
        )
        if model.output:
            ops.append(
                self._linear(f"{prefix}.output", target, total, gain=gain, residual=residual)
            )
        return ops

    def _gain(self, name: str) -> float:
        return float(self.weights[name][0]) if self.model.parallel else 1.0

    def _plain_head(
        self, prefix: str, index: int, value_scale: float, target_scale: float, gain: float
    ) -> Head:
        scale = self.tensors.scale(Range(0.0, 1.0), self.tensors.probability_zero)
        if self.config.zero_points:
            # One step more than fits: p = 1 saturates, and every other p is exact to half a step.
            scale = 2.0**-self.config.operand_width
        return Head(
            rescale_of(0, 2.0**-PROBABILITY_FRACTION / scale),
            rescale_of(0, gain * scale * value_scale / target_scale),
            None,
        )

    def _shaped_head(
        self, prefix: str, index: int, value_scale: float, target_scale: float, gain: float
    ) -> Head:
        """Return ``beta * (p + alpha / beta * I - gamma / (beta * sequence))``."""
        alpha, beta, gamma = (
            float(self.weights[f"{prefix}.{name}"][index]) for name in ("alpha", "beta", "gamma")
        )
        scale = self.tensors.scale(
            self.ranges.heads[f"{prefix}.probabilities"][index], self.tensors.probability_zero
        )
        limit = 1 << (IMMEDIATE_WIDTH - 1)
        units = 2.0**PROBABILITY_FRACTION
        mean = gamma / self.model.sequence
        if max(abs(alpha), abs(mean)) * units >= abs(beta) * limit:
            raise InputError(
                f"Shaped attention of head {index} in {prefix} of model {self.model.name} needs "
                f"alpha and gamma less than {limit / units:g} times beta, but alpha is {alpha:g}, "
                f"beta is {beta:g} and gamma is {gamma:g}"
            )
        return Head(
            rescale_of(round(-mean / beta * units), beta / (units * scale)),
            rescale_of(0, gain * scale * value_scale / target_scale),
            round(alpha / beta * units),
        )

    def _mlp(self, prefix: str, x: Tensor, total: Tensor, residual: bool) -> list[Op]:
        hidden = self.tensors.hidden(f"{prefix}.hidden")
        up = self._activated(f"{prefix}.up", f"{prefix}.up", x, hidden, self.model.activation)
        gain = self._gain(f"{prefix}.mlp_gain")
        return [up, self._linear(f"{prefix}.down", hidden, total, gain=gain, residual=residual)]

    def _activated(
        self, name: str, sums: str, x: Tensor, target: Tensor, activation: str
    ) -> Linear:
        """Return a linear layer with its activation; ``sums`` is the tensor between the two."""
        if activation == "relu":
            return self._linear(name, x, target, relu=True)
        function = FUNCTIONS[FUNCTION_NAMES[activation]]
        found = useful_range(function, self.ranges.tensors[sums], target.scale)
        low, high = self.config.operand_min, self.config.operand_max
        scale = (found.high - found.low) / (high - low) or 1.0
        zero = round(low - found.low / scale)
        width = self.config.operand_width
        table = int8_table(function, scale, zero, target.scale, target.zero, width)
        # The zero point of the table's inputs is a part of the bias: layers may differ in it.
        return self._linear(name, x, target, scale=scale, offset=scale * zero, table=table)

    def _after(self) -> list[Op]:
        """Return the operations from the last block's stream to the output."""
        model = self.model
        rows = 1 if model.pooling == "class" else model.sequence
        stream = self.tensors.stream("stream", rows)
        last = model.pooling != "mean" and not model.classes
        ops: list[Op] = []
        narrow = self.tensors.narrow("final", model.dim, rows=rows)
        x = stream
        if model.final_norm:
            target = self.tensors.wide("final", rows, model.dim) if last else narrow
            ops.append(self._norm("final_norm", stream, target))
            x = target
        elif not last:
            x = narrow
            ops.append(self._convert(stream, x))
        if model.pooling == "mean":
            if model.classes:
                pooled = self.tensors.narrow("pooled", model.dim, rows=1)
            else:
                pooled = self.tensors.wide("pooled", 1, model.dim)
            ops.append(Pool(x, pooled, x.scale / pooled.scale, model.variable))
            x = pooled
        if model.head_hidden:
            hidden = self.tensors.narrow("head_hidden", model.head_hidden, rows=x.rows)
            activation = model.head_activation
            ops.append(self._activated("head_hidden", "head_up", x, hidden, activation))
            x = hidden
        if model.classes:
            output = self.tensors.wide("raw_output", x.rows, model.classes)
            ops.append(self._linear("head", x, replace(output, name="output", buffer="output")))
        return ops
