"""Quantization scales of a decoder, from the values of its tensors over sampled texts.

All scales are static. Weights are symmetric INT8, with a scale for each output of a layer.
Activations have a scale for each column, which is folded into the weights of the layers before and
after. If the option ``folded`` is set, the scales of an RMS norm's output are proportional to the
norm's gains. Then all columns of this output have the same requantization parameters. Each scale
minimizes the squared error over the samples. Therefore rare large values may saturate.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import FUNCTIONS, Function
from celosia.arch.norm import VALUE_FRACTION
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph import network
from celosia.generators.graph.network import Attention, Home, Value
from celosia.generators.graph.operations import ROTARY_STEPS, TIMES_STEPS
from celosia.generators.graph.tensors import WIDE, Tensor
from celosia.generators.quantize.balance import column_gains
from celosia.generators.quantize.calibrate import Calibration
from celosia.generators.quantize.keys import KeySteps, quantize_keys
from celosia.generators.quantize.options import DECODER_BALANCE, NARROW_BITS, Quantization
from celosia.generators.quantize.steps import (
    best_step,
    best_steps,
    kept_range,
    spread_range,
    wide_step,
)
from celosia.generators.quantize.tensor_steps import Steps, wide_scale
from celosia.generators.reference.floats import FUNCTION_NAMES
from celosia.sim.requantize import INT16_MAX

INT8_MAX = 127
_POSITIONS = ("positions", "source.positions")
_STREAM = "_sum", "_norm"
"""Ends of the names of the residual stream's values after the embedding."""


class ErrorSteps(Steps[TextDescription]):
    """Chooses the quantization scales of a decoder's tensors and weights.

    The option ``whole`` is the number of columns of each key head that keep 8 bits. The option
    ``block`` is the number of value columns that share an exponent. Raises :class:`InputError` if
    ``whole`` exceeds the columns of a key head, or if the number of value columns is not a multiple
    of ``block``.
    """

    relu_in_sums = False
    wide_parts = ("attention_input", "query", "context")
    zeros_in_biases = True
    probability_zero = 0

    def __init__(
        self,
        model: TextDescription,
        weights: Weights,
        samples: Calibration,
        options: Quantization,
    ):
        super().__init__(model, weights, samples.rows, options, NARROW_BITS, DECODER_BALANCE)
        self.samples = samples
        sums = [bounds.size for name, bounds in samples.ranges.items() if name.endswith(_STREAM)]
        places = [np.abs(weights[name]).max() for name in _POSITIONS if name in weights]
        sums.append(np.abs(weights["words"]).max() + max(places, default=0.0))
        self.stream_scale = wide_scale(sums)
        self.rotary = model.position == "rotary"
        self.whole = options.whole or 0
        """First columns of an integer key head that keep 8 bits."""
        if options.whole is None and self.rotary and options.kv_bits < NARROW_BITS:
            self.whole = model.head_dim // 4 * 2
        if self.whole > model.head_dim:
            raise InputError(
                f"Heads of {model.head_dim} columns have no {self.whole} that keep 8 bits"
            )
        if options.block and model.kv_width % options.block:
            raise InputError(
                f"Model {model.name} has {model.kv_width} columns of values, which no blocks of "
                f"{options.block} share"
            )
        columns = np.arange(model.head_dim)
        # The last pairs turn slowest.
        slow = columns.reshape(-1, 2)[::-1].ravel() if self.rotary and self.whole else columns
        self.head_columns = slow
        """Column of a float head behind each column of an integer head, [key_dim]."""
        self._keys: dict[str, KeySteps] = {}

    def _make(self, value: Value) -> Tensor:
        prefix, _, kind = value.name.rpartition(".")
        tensor = Tensor(value.name, value.buffer, value.rows, value.columns, 1.0, home=value.home)
        if self._is_wide(value.name):
            tensor = replace(tensor, width=WIDE)
        if value.home is Home.STREAM:
            return replace(tensor, scale=self.stream_scale, width=WIDE)
        match kind:
            case "input":
                return replace(tensor, width=2 * WIDE)
            case "attention_input" | "mlp_input" | "final":
                return self._normed(tensor)
            case "query" | "key" | "query_sums" | "key_sums":
                return self._projected(tensor, prefix, kind)
            case "query_heads" | "key_heads":
                # The variance that norms add is an operand, the same in all layers.
                ranges, picks = self.samples.ranges.items(), self._picks(value.columns)
                sizes = [bounds.size for name, bounds in ranges if name.endswith("_heads")]
                return replace(tensor, scale=wide_scale(sizes), width=WIDE, picks=picks)
            case "query_normed" | "key_normed":
                picks = self._picks(value.columns)
                by_head = self.rows[value.name].reshape(-1, self.model.head_dim)
                gains = np.resize(best_steps(by_head[:, self.head_columns], INT8_MAX), len(picks))
                return replace(tensor, gains=gains, picks=picks)
            case "value":
                middle, steps = self._value_steps(value)
                return replace(tensor, gains=steps, offsets=middle)
            case "context":
                return self._context(tensor, prefix)
            case "active":
                return self._active(tensor, f"{prefix}.gate")
            case "up":
                return replace(tensor, gains=self._up(prefix), width=WIDE)
            case "hidden" if self.model.gated:
                return replace(tensor, gains=self._hidden(prefix))
            case "hidden":
                return self._active(tensor, f"{prefix}.up")
        assert kind == "logits"
        return replace(tensor, scale=wide_scale([self.samples.ranges["logits"].size]), width=WIDE)

    def _normed(self, target: Tensor) -> Tensor:
        """Return a layer's input, in steps of its norm's gains if these are folded."""
        normed = self.model.placement == "pre" and self.model.final_norm
        if not (normed and self.options.folded and self.model.norm == "rmsnorm"):
            return replace(target, gains=self._balanced(target.name))
        norm = target.name.replace("_input", "_norm").replace("final", "final_norm")
        gamma = self.weights[f"{norm}.weight"]
        gained = gamma != 0
        if self.options.deferred:
            return replace(target, scale=self._unscaled(target.name), gains=gamma)
        step = self._step(target.name, self.rows[target.name][:, gained] / gamma[gained])
        return replace(target, scale=step, gains=gamma)

    def _unscaled(self, name: str) -> float:
        """Return the step of a deferred norm's output, for products that multiply by rows' factors.

        A row's factor turns integers of the stream, times its columns, into the norm's values in
        Q.16.
        """
        return self.kept_steps(name) * self.model.dim / (1 << VALUE_FRACTION)

    def kept_steps(self, name: str) -> float:
        """Return a deferred norm's INT8 output scale, divided by the residual stream's scale.

        A deferred norm does not normalize its rows; the next product multiplies each row by its
        normalization factor. ``name`` is the name of the norm's output.
        """
        sources = {
            node.target.name: node.source.name
            for node in network.network(self.model).all_nodes
            if isinstance(node, network.Norm)
        }
        return best_step(self.rows[sources[name]], INT8_MAX) / self.stream_scale

    def _balanced(self, name: str) -> Floats:
        values = self.rows[name]
        gains = column_gains(np.abs(values).max(axis=0), self.balance)
        return np.asarray(self._step(name, values / gains) * gains)

    def _step(self, name: str, values: Floats) -> float:
        """Return the step of a tensor's values."""
        return wide_step(values) if self._is_wide(name) else best_step(values, INT8_MAX)

    def _projected(self, tensor: Tensor, prefix: str, kind: str) -> Tensor:
        """Return queries or keys, before their rotation or after it."""
        steps, name = self._key_steps(prefix), kind.removesuffix("_sums")
        by_head = steps.query if name == "query" else steps.key  # [heads, key_dim]
        picks = self._picks(tensor.columns)
        tensor = replace(tensor, columns=len(picks), picks=picks, gains=by_head.ravel())
        if kind == name:
            return replace(tensor, offsets=steps.middle.ravel() if name == "key" else None)
        # An INT16 behind the rotation has the steps of that in front of it.
        wide = self._is_wide(f"{prefix}.{name}")
        return replace(tensor, scale=1.0 if wide else 1.0 / ROTARY_STEPS, width=WIDE)

    def _picks(self, columns: int) -> NDArray[np.int64]:
        """Return the float model's column for each column of queries or keys."""
        first = np.arange(0, columns, self.model.head_dim)[:, None]
        return np.asarray((first + self.head_columns).ravel())

    def _value_steps(self, value: Value) -> tuple[Floats, Floats]:
        values, bits = self.rows[value.name], self.options.kv_bits
        if self.options.deferred:
            return np.zeros(value.columns), best_steps(values, INT8_MAX)
        if self.options.block:
            return spread_range(values, 1 if self.balance else value.columns)
        return kept_range(values, bits, 1 if self.balance else value.columns)

    def _key_steps(self, prefix: str) -> KeySteps:
        if prefix not in self._keys:
            source, cross = prefix.startswith("source."), prefix.endswith(".cross")
            self._keys[prefix] = quantize_keys(
                self.model,
                self._by_text(f"{prefix}.key", self.model.kv_heads, source=source or cross),
                self._by_text(f"{prefix}.query", self.model.heads, source=source),
                self.head_columns,
                self.whole,
                self.options,
                causal=not (source or cross),
            )
        return self._keys[prefix]

    def _by_text(self, name: str, heads: int, *, source: bool) -> list[Floats]:
        """Return a tensor's rows for each text, or for each source, [n, heads, head_dim] each."""
        rows = self.rows[name].reshape(-1, heads, self.model.head_dim)
        count, length = self.samples.tokens.shape
        counts = self.samples.sources if source else (length,) * count
        return np.split(rows, np.cumsum(counts)[:-1])

    def _context(self, target: Tensor, prefix: str) -> Tensor:
        """Return attention's output, in proportion to the values' steps if heads are alike."""
        if not self.options.alike:
            return replace(target, gains=self._balanced(target.name))
        model = self.model
        by_head = self._tensors[f"{prefix}.value", 0].steps.reshape(model.kv_heads, -1)
        gains = np.repeat(by_head, model.group, axis=0).ravel()
        step = self._step(target.name, self.rows[target.name] / gains)
        return replace(target, scale=step, gains=gains)

    def _active(self, target: Tensor, sums: str) -> Tensor:
        """Return the output of an activation's table."""
        low, high = self._active_range(sums)
        least, most = self.operand_min, self.operand_max
        after = (high - low) / (most - least) or 1.0
        zero = int(np.clip(round(least - low / after), least, most))
        if self.model.gated:
            # An operand of an instruction that is the same in all layers.
            zero = self._gate_zero
            after = max(high / (most - zero), low / (least - zero)) or 1.0
        return replace(target, scale=after, zero=zero)

    def _active_range(self, sums: str) -> tuple[float, float]:
        results = FUNCTIONS[FUNCTION_NAMES[self.model.activation]](self.rows[sums])
        return min(float(results.min()), 0.0), max(float(results.max()), 0.0)

    @cached_property
    def _gate_zero(self) -> int:
        """The zero point with which the range of each layer's active gate, scaled, fits."""
        ranges = [self._active_range(name) for name in self.rows if name.endswith(".gate")]
        return max(self._common_zero(ranges, 0.0), self.operand_min + 1)

    def _hidden(self, prefix: str) -> Floats:
        """Return the steps of the product of gate and up, [ffn].

        The other factor must fit the INT16 before the product.
        """
        after = self._gate_scale(prefix)
        largest = np.abs(self.rows[f"{prefix}.up"]).max(axis=0)
        least = largest * TIMES_STEPS * after / INT16_MAX
        if not self.balance:
            least[:] = least.max()
        return np.asarray(np.maximum(self._balanced(f"{prefix}.hidden"), least))

    def _up(self, prefix: str) -> Floats:
        hidden = self.tensor(Value(f"{prefix}.hidden", self.model.ffn)).steps
        return np.asarray(hidden / (TIMES_STEPS * self._gate_scale(prefix)))

    def _gate_scale(self, prefix: str) -> float:
        return self.tensor(Value(f"{prefix}.active", self.model.ffn)).scale

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the scale of each output's weights, [n].

        ``scaled`` [n, k] are the float weights times the scales of their inputs.
        """
        return best_steps(scaled.T, INT8_MAX)

    def _function_input(
        self, function: Function, name: str, after: float, activation: str
    ) -> tuple[float, int]:
        if self.options.wide(activation):
            return float(np.abs(self.rows[name]).max()) / INT16_MAX or 1.0, 0
        return best_step(self.rows[name], self.operand_max), 0

    def products(self, node: Attention) -> tuple[Floats, Floats]:
        """Return (scale of query-key products, offset added to them), two arrays [heads]."""
        steps = self._key_steps(node.prefix)
        return steps.product, steps.raised

    def probability_scale(self, node: Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""
        return 1.0 / INT8_MAX
