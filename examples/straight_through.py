"""A model in PyTorch with the integer golden model's forward pass, and real gradients.

Each value of a model's graph is computed in floats from the values before it, and then replaced by
the value of the golden model's integers. Gradients pass straight through that replacement, except
for values that saturate (Bengio et al. 2013). Weights become codes of a format likewise.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from celosia.arch.formats import OPERAND_BITS, WeightFormat
from celosia.generators.graph import network
from celosia.generators.graph.network import Home, Network, Value
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.tensors import Tensor as IntegerTensor
from celosia.generators.reference.integers import evaluate

_ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
}


class Through(torch.autograd.Function):
    """``exact`` forward; backward, its gradient is that of ``smooth``."""

    @staticmethod
    def forward(context: Any, smooth: Tensor, exact: Tensor) -> Tensor:
        """Return ``exact``."""
        return exact.expand_as(smooth).clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient, straight through."""
        return gradient, None


def codes(weight: Tensor, step: Tensor, form: WeightFormat) -> Tensor:
    """Return the values of a format's codes, [n, k], nearest to weights in steps [n, 1].

    Steps learn, too (Esser et al. 2020, "Learned Step Size Quantization").
    """
    exact = weight / step
    return Through.apply(exact, exact.round()).clamp(min(form.values), max(form.values))


def nested(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return the upper bits of INT8 codes of weights [n, k], and the steps [n, 1].

    The largest code of each output is 127. Fewer than 8 bits stand for the middle of their
    interval.
    """
    step = weight.detach().abs().amax(1, keepdim=True).clamp_min(1e-9) / 127
    exact, size = weight / step, 1 << (OPERAND_BITS - bits)
    ints = (exact.round() / size).floor() * size + size // 2
    return Through.apply(exact, ints), step


class Forward:
    """One forward pass for a batch; ``found`` has every value, in floats."""

    def __init__(
        self,
        graph: Network,
        weights: Mapping[str, Tensor],
        inputs: np.ndarray,
        integers: IntegerGraph | None = None,
        *,
        source: "Forward | None" = None,
        seen: Tensor | None = None,
    ):
        """Compute all values for inputs [batch, ...], without ``integers`` in floats only.

        A decoder may answer a ``source``, whose rows are ``seen``, [batch, rows].
        """
        self.graph, self.model, self.weights = graph, graph.description, weights
        self.source, self.seen = source, seen if source is None else source.seen
        self.inputs = inputs
        self.exact: dict[str, Tensor] = {}
        self.tensors: dict[str, IntegerTensor] = {}
        if integers is not None:
            self.tensors = {op.target.name: op.target for op in integers.ops}
            runs = [evaluate(integers, sample) for sample in inputs]
            for name, tensor in self.tensors.items():
                ints = np.stack([run[name] for run in runs])
                self.exact[name] = _real(ints, tensor)
        self.found: dict[str, Tensor] = {} if source is None else dict(source.found)
        if not self._text:
            self.found[graph.input.name] = torch.tensor(inputs, dtype=torch.float32)
        for node in graph.nodes:
            self.found[node.target.name] = self._kept(node.target, self._node(node))

    @property
    def output(self) -> Tensor:
        """The result, [batch, rows, columns]."""
        return self.found[self.graph.output.name]

    @property
    def _text(self) -> bool:
        return isinstance(self.graph.nodes[0], network.Embedding)

    def _kept(self, value: Value, smooth: Tensor) -> Tensor:
        """Return the golden model's value, with the gradient of ``smooth``."""
        name = "output" if value.name == "raw_output" else value.name
        if name not in self.exact:
            return smooth
        tensor, half = self.tensors[name], 1 << (self.tensors[name].width - 1)
        ends = [_real(np.full(tensor.columns, end), tensor) for end in (-half, half - 1)]
        low, high = torch.minimum(*ends), torch.maximum(*ends)
        return Through.apply(smooth.clamp(low, high), self.exact[name])

    def _node(self, node: network.Node) -> Tensor:
        match node:
            case network.Embedding():
                x = self.weights["words"][torch.tensor(self.inputs)]
                return x + self.weights[node.positions][: x.shape[1]] if node.positions else x
            case network.Start():
                return self.weights["positions"].expand(len(self.inputs), -1, -1)
            case network.Linear():
                return self._linear(node)
            case network.Norm():
                return self._norm(node)
            case network.Convert():
                return self.found[node.source.name]
            case network.Rotary():
                return self._rotary(node)
            case network.Gate():
                return self.found[node.source.name] * self.found[node.up.name]
            case network.Attention():
                return self._attention(node)
            case network.Pool():
                return self.found[node.source.name].mean(dim=1, keepdim=True)

    def _linear(self, node: network.Linear) -> Tensor:
        source = self.found[node.source.name]
        y = functional.linear(source, self.weights[node.weight], self.weights.get(node.bias))
        return self._added(node, _ACTIVATIONS[node.activation](y) if node.activation else y)

    def _added(self, node: network.Linear | network.Attention, y: Tensor) -> Tensor:
        if node.gain:
            y = self.weights[node.gain] * y
        return y if node.residual is None else self.found[node.residual.name] + y

    def _norm(self, node: network.Norm) -> Tensor:
        x = self.found[node.source.name]
        if self.model.norm == "layernorm":
            x = x - x.mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + self.model.epsilon)
        return x * self.weights[f"{node.name}.weight"] + self.weights.get(f"{node.name}.bias", 0.0)

    def _heads(self, value: Value) -> Tensor:
        x = self.found[value.name]
        return x.unflatten(-1, (-1, self.model.head_dim)).transpose(1, 2)

    def _rotary(self, node: network.Rotary) -> Tensor:
        x, dim = self._heads(node.source), self.model.head_dim
        places = torch.arange(x.shape[2])[:, None]
        angle = places * self.model.rotary_base ** (-torch.arange(0, dim, 2) / dim)
        even, odd = x[..., 0::2], x[..., 1::2]
        cosine, sine = angle.cos(), angle.sin()
        rotated = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        return rotated.flatten(-2).transpose(1, 2).flatten(2)

    def _attention(self, node: network.Attention) -> Tensor:
        query, key, value = map(self._heads, (node.query, node.key, node.value))
        group = query.shape[1] // key.shape[1]
        key, value = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
        scores = query @ key.transpose(-1, -2) * self.model.head_dim**-0.5
        if node.key.home is Home.CACHE:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        elif self.seen is not None:
            scores = scores.masked_fill(~self.seen[:, None, None], float("-inf"))
        matrix = scores.softmax(-1)
        if self.model.shaped:
            alpha, beta, gamma = (
                self.weights[f"{node.prefix}.{name}"][:, None, None]
                for name in ("alpha", "beta", "gamma")
            )
            n = matrix.shape[-1]
            matrix = alpha * torch.eye(n) + beta * matrix - gamma / n
        return self._added(node, (matrix @ value).transpose(1, 2).flatten(2))


def matrices(graph: Network) -> list[str]:
    """Return the names of the weights of all linear layers."""
    return [node.weight for node in graph.nodes if isinstance(node, network.Linear)]


def _real(ints: np.ndarray, tensor: IntegerTensor) -> Tensor:
    """Return the real values of a tensor's integers."""
    offsets = 0.0 if tensor.offsets is None else tensor.offsets
    return torch.tensor((ints - tensor.zero) * tensor.steps + offsets, dtype=torch.float32)
