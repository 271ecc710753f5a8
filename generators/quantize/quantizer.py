"""Conversion of a float graph's nodes to integer operations."""

from dataclasses import replace
from typing import Any, Generic

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS, NESTED
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph import network
from celosia.generators.graph.network import Home, Network, Node, Value
from celosia.generators.graph.operations import (
    Attention,
    Convert,
    Embedding,
    Gate,
    Linear,
    LowRank,
    Norm,
    Op,
    Plane,
    Pool,
    Rotary,
)
from celosia.generators.graph.quantized import D, Graph
from celosia.generators.graph.stored import Stored
from celosia.generators.graph.tensors import Ints, Rescale, Tensor, quantize, rescale_of
from celosia.generators.quantize.attention import quantize_attention
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.quantize.low_rank import correct
from celosia.generators.quantize.nested import nest, planes
from celosia.generators.quantize.options import INT8, NARROW_BITS, Quantization
from celosia.generators.quantize.stored import quantize_weights
from celosia.generators.quantize.tensor_steps import Steps
from celosia.sim.norm import norm_parameters, quantize_eps
from celosia.sim.requantize import FactorError
from celosia.sim.rotary import rotary_table, speeds_table

_FINER = 1 << 10
"""Steps of nested weights that are all 0 in the smallest step of other outputs."""
_LARGEST = 1 << 20
"""Largest integer bias of an output whose nested weights are all 0."""


class Quantizer(Generic[D]):
    """Converts a float graph to integer operations, node by node."""

    def __init__(
        self,
        model: D,
        weights: Weights,
        steps: Steps,
        options: Quantization,
        graph: Network,
        progress: Progress | None = None,
    ):
        self.model, self.weights, self.steps, self.options = model, weights, steps, options
        self.network, self._progress, self._done = graph, progress, 0
        self._normed = {
            node.target.name for node in graph.all_nodes if isinstance(node, network.Norm)
        }

    def graph(self) -> Graph[D]:
        """Return the model in integers: the quantized graph, with all weights and parameters.

        Raises :class:`InputError` if a value of the model cannot be represented in integers.
        """
        whole, model = self.network, self.model
        before, after = self._ops(whole.before), self._ops(whole.after)
        layers = tuple(self._ops(layer) for layer in whole.layers)
        ops = (op for part in (before, *layers, after) for op in part)
        if self.options.wide_functions and not any(
            isinstance(op, Linear) and op.polynomial for op in ops
        ):
            raise InputError(
                f"Model {model.name} has no function that polynomials of 16-bit operands are for"
            )
        output, tensor = self.steps.tensor(whole.output), self.steps.tensor
        return Graph(
            model,
            replace(tensor(whole.input), name="input"),
            output if after else replace(output, name="output"),
            tensor(Value("stream", model.dim, home=Home.STREAM)),
            self._start(before),
            before,
            layers,
            after,
        )

    def _start(self, before: tuple[Op, ...]) -> Ints | None:
        """Return the initial content of the residual stream, or None if nothing reads it."""
        for node in self.network.before:
            if isinstance(node, network.Start):
                rows = self.steps.tensor(node.target).rows
                values = np.zeros((rows, self.model.dim))
                if "class_token" in self.weights:
                    values[0] = self.weights["class_token"]
                values += self.weights.get("positions", 0.0)
                # A separate start token has the steps of the tensor that is added to it.
                (first, *_) = (op for op in before if isinstance(op, Linear))
                return quantize(values, first.target)
        return None

    def _ops(self, nodes: tuple[Node, ...]) -> tuple[Op, ...]:
        return tuple(op for node in nodes for op in self._named(node))

    def _named(self, node: Node) -> list[Op]:
        """Return a node's operations; an error names the node and the largest of its weights."""
        if self._progress is not None:
            self._progress(self._done, len(self.network.nodes))
        self._done += 1
        try:
            return self._op(node)
        except FactorError as error:
            name = node.target.name
            own: list[str] = []
            if isinstance(node, network.Linear):
                own = [node.weight, node.bias]
            elif isinstance(node, network.Norm):
                own = [f"{node.name}.weight", f"{node.name}.bias"]
            sizes = [
                f"the largest magnitude in {tensor_name} is "
                f"{np.abs(self.weights[tensor_name]).max():g}"
                for tensor_name in own
                if tensor_name in self.weights
            ]
            raise InputError(
                f"Tensor {name} of model {self.model.name} cannot be requantized: {error}"
                f"{''.join(f'; {size}' for size in sizes)}; rescale the model's weights, or "
                "calibrate on inputs like those to come (--calibration)"
            ) from None

    def _op(self, node: Node) -> list[Op]:
        match node:
            case network.Embedding():
                return [self._embedding(node)]
            case network.Start():
                return []
            case network.Linear():
                return [self._linear(node)]
            case network.Norm():
                return [self._norm(node)]
            case network.Convert():
                return [_converted(*self._ends(node))]
            case network.Rotary():
                return self._rotary(node)
            case network.Gate():
                up = self.steps.tensor(node.up)
                source, target = self._ends(node)
                return [Gate(source, up, target)]
            case network.Attention():
                return [self._attention(node)]
            case network.Pool():
                source, target = (self.steps.tensor(v) for v in (node.source, node.target))
                return [Pool(source, target, source.scale / target.scale, node.variable)]

    def _attention(self, node: network.Attention) -> Attention:
        bits = self.options.kv_bits if node.key.home is Home.CACHE else NARROW_BITS
        block = self.options.block if bits < NARROW_BITS else 0
        deferred = self.options.deferred
        return quantize_attention(
            self.model, self.weights, self.steps, node, bits, block, deferred=deferred
        )

    def _ends(
        self, node: network.Linear | network.Norm | network.Convert | network.Rotary | network.Gate
    ) -> tuple[Tensor, Tensor]:
        """Return a node's source, reduced to the rows that it reads, and its target."""
        source, target = self.steps.tensor(node.source), self.steps.tensor(node.target)
        return replace(source, rows=target.rows) if node.target.rows else source, target

    def _embedding(self, node: network.Embedding) -> Embedding:
        words, target = self.weights[node.words], self.steps.tensor(node.target)
        steps = np.abs(words).max(axis=0) / self.steps.operand_max  # [dim]
        steps = np.where(steps > 0, steps, target.scale)
        places = None
        if node.positions:
            places = np.rint(self.weights[node.positions] / target.scale).astype(np.int64)
        vectors = np.rint(words / steps).astype(np.int64)
        return Embedding(
            target, vectors, rescale_of(np.zeros(len(steps)), steps / target.scale), places
        )

    def _linear(self, node: network.Linear) -> Linear:
        source, target = self._ends(node)
        out, offset, table, relu = target.steps, 0.0, None, False
        if node.activation:
            scale, offset, table = self.steps.activation(node, target)
            out, relu = np.array([scale]), table is None
        gain = float(self.weights[node.gain][0]) if node.gain else 1.0
        matrix = gain * self.weights[node.weight]  # [n, k]
        bias = gain * self.weights.get(node.bias, np.zeros(len(matrix)))
        if target.picks is not None:
            matrix, bias = matrix[target.picks], bias[target.picks]
        if target.offsets is not None and not node.activation:
            bias = bias - target.offsets
        form = self.options.chosen.get(node.weight, self.options.weights)
        scaled, stored, low_rank, apart = matrix * source.steps, None, None, list[Plane]()
        if form == INT8:
            weight, biases, steps = self._weights(scaled, bias + offset, out)
        elif form == NESTED:
            inputs = self.steps.inputs(node.source)
            assert inputs is not None, "calibration keeps rows for nested weights"
            weight, steps = nest(scaled, inputs)
            # Without its lower bits a weight is not 0, so that its step is small beside the others.
            least = steps[scaled.any(axis=1)].min(initial=out.min()) / _FINER
            steps = _steps(scaled, steps, np.maximum(least, np.abs(bias + offset) / _LARGEST))
            biases = _biases((bias + offset) / steps)
            apart = _planes(weight, biases, source.zero if self.steps.policy.zeros_in_biases else 0)
        else:
            stored, weight, steps, low_rank = self._coded(node, source, target, scaled, form)
            steps = _steps(scaled, steps, out)
            biases = _biases((bias + offset) / steps)
        zero = source.zero
        if zero and self.steps.policy.zeros_in_biases:
            biases, source = biases - zero * weight.sum(axis=0), replace(source, zero=0)
        factors = self.options.deferred and node.source.name in self._normed
        if factors and biases.any():
            raise InputError(
                f"Layer {node.weight.removesuffix('.weight')} of model {self.model.name} has "
                f"biases, which no product behind a deferred norm can have"
            )
        rescale = rescale_of(biases, steps / out)
        whole = weight if low_rank is None else np.concatenate((weight, low_rank.weight))
        self._check(node, source, whole, rescale, steps, out)
        residual = node.residual is not None
        wide = self.options.wide(node.activation)
        return Linear(
            source,
            target,
            weight,
            rescale,
            node.row,
            relu,
            table,
            wide,
            residual,
            stored,
            tuple(apart),
            low_rank,
            factors=factors,
        )

    def _coded(
        self, node: network.Linear, source: Tensor, target: Tensor, scaled: Floats, form: str
    ) -> tuple[Stored, Ints, Floats, LowRank | None]:
        """Return the codes of weights [n, k], operands [k, n], steps [n], and the correction.

        Matrices outside the blocks that are no wider than the rank have no correction.
        """
        inputs, options = self.steps.inputs(node.source), self.options
        outer = "layers." not in node.weight
        if not options.low_rank or (outer and options.low_rank >= min(scaled.shape)):
            return (*quantize_weights(scaled, FORMATS[form], options.group, inputs), None)
        assert inputs is not None, "calibration keeps rows for corrections"
        layer = node.weight.removesuffix(".weight")
        corrected = correct(scaled, FORMATS[form], options.group, inputs, options.low_rank, layer)
        name = f"{target.name}_thin"
        thin = Tensor(name, name.rpartition(".")[2], source.rows, options.low_rank, 1.0)
        rescale = rescale_of(-source.zero * corrected.first.sum(axis=0), corrected.factors)
        first = Linear(replace(source, zero=0), thin, corrected.first, rescale)
        self._check(node, first.source, corrected.first, rescale, corrected.factors, np.ones(1))
        return corrected.stored, corrected.weight, corrected.steps, LowRank(first, corrected.second)

    def _weights(self, scaled: Floats, bias: Floats, out: Floats) -> tuple[Ints, Ints, Floats]:
        """Return weights [k, n], biases [n], and the real value of a step of each sum [n]."""
        steps = self.steps.weight_steps(scaled, bias, np.broadcast_to(out, bias.shape))
        high = self.steps.operand_max
        weight = np.clip(np.rint(scaled / steps[:, None]), -high, high).astype(np.int64).T
        return weight, _biases(bias / steps), steps

    def _check(
        self,
        node: network.Linear,
        source: Tensor,
        weight: Ints,
        rescale: Rescale,
        steps: Floats,
        out: Floats,
    ) -> None:
        """Refuse sums whose intermediate values exceed 32 bits."""
        half = 1 << (source.width - 1)
        reach = max(source.zero + half, half - 1 - source.zero)
        bound = np.abs(weight).sum(axis=0) * reach + np.abs(rescale.bias)
        shifts = np.maximum(rescale.shift, 0)
        wrong = np.flatnonzero(bound << shifts >= 1 << 31)
        if not wrong.size:
            return
        first = wrong[0]
        step, fine = f"{steps[first]:.3g}", np.broadcast_to(out, bound.shape)[first]
        reason = f"its output's step {fine:.3g} is too small beside its products' {step}"
        if not shifts[first]:
            reason = (
                f"its bias is {abs(rescale.bias[first]):,} of its products' steps of {step} or "
                f"more; store its weights in int8 (--quantize weights=int8), whose steps fit biases"
            )
        raise InputError(
            f"Layer {node.weight.removesuffix('.weight')} of model {self.model.name} cannot be "
            f"requantized: {reason}"
        )

    def _norm(self, node: network.Norm) -> Norm:
        source, target = self._ends(node)
        width = source.columns // max(node.heads, 1)
        eps = quantize_eps(self.model.epsilon, n=width, scale=source.scale)
        rms = self.model.norm == "rmsnorm"
        if self.options.deferred:
            steps = self.steps.deferred_norm_divisor(node.target.name)
            return Norm(source, target, rescale_of(0, 1 / steps), rms, eps, deferred=True)
        gamma = self.weights[f"{node.name}.weight"]
        beta = self.weights.get(f"{node.name}.bias", np.zeros(len(gamma)))
        if target.picks is not None:
            gamma, beta = gamma[target.picks[:width]], beta[target.picks[:width]]
        if target.gains is not None:
            gains = target.gains[:width]
            # A column whose gain is zero has the parameters of the others.
            ones = np.ones_like(gamma)
            gamma = np.divide(gamma, gains, out=ones, where=gains != 0)
            beta = np.divide(beta, gains, out=0 * ones, where=gains != 0)
        if self.options.folded and not node.heads and np.all(gamma == gamma[0]) and not beta.any():
            gamma, beta = gamma[:1], beta[:1]
        parts = norm_parameters(gamma, beta, target.scale)
        bias, multiplier, shift = (part.astype(np.int64) for part in parts)
        return Norm(source, target, Rescale(bias, multiplier, shift), rms, eps, heads=node.heads)

    def _rotary(self, node: network.Rotary) -> list[Op]:
        model: Any = self.model
        source, target = self._ends(node)
        assert target.picks is not None
        columns = target.picks[: target.columns // (node.target.columns // model.head_dim)]
        places = np.arange(1 if node.still else self.options.places or model.positions)
        if model.rotary_speeds:
            table = speeds_table(places, self.weights["rotary_speeds"])
        else:
            table = rotary_table(places, model.head_dim, model.head_dim, model.rotary_base)
        return [Rotary(source, target, table.astype(np.int64)[:, columns])]


def _steps(scaled: Floats, steps: Floats, others: Floats) -> Floats:
    """Return the steps [n] of weights [n, k]; an output whose weights are all 0 has ``others``.

    The integer bias of such an output is its bias in these steps.
    """
    return np.where(scaled.any(axis=1), steps, others)


def _biases(values: Floats) -> Ints:
    """Return the nearest integers, limited so that a sum with a limited one is refused."""
    return np.clip(np.rint(values), -(1 << 32), 1 << 32).astype(np.int64)


def _planes(weight: Ints, biases: Ints, zero: int) -> list[Plane]:
    """Return the planes of weights whose sums have biases without the input's zero point."""
    stored_planes, total = list[Plane](), np.zeros_like(weight)
    for stored in planes(weight):
        plane = Plane(stored, biases)
        total = total + plane.values
        stored_planes.append(replace(plane, bias=biases - zero * total.sum(axis=0)))
    return stored_planes


def _converted(source: Tensor, target: Tensor) -> Convert:
    """Return a tensor's conversion to another one's steps."""
    factors = source.steps / target.steps
    return Convert(source, target, rescale_of(np.zeros_like(factors), factors))
