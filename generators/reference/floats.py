"""The float reference: evaluates any model's graph, and returns all intermediate values.

An input is evaluated in one call. A text may also be evaluated in several calls, for example token
by token, with a cache of keys and values.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import FUNCTIONS
from celosia.generators.frontend.base_description import ACTIVATIONS
from celosia.generators.frontend.embedding import accelerator_rows
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.builder import network
from celosia.generators.graph.network import (
    Attention,
    Convert,
    Description,
    Embedding,
    Gate,
    Home,
    Linear,
    Network,
    Node,
    Norm,
    Pool,
    Rotary,
    Start,
    Value,
)
from celosia.generators.reference.cache import KvCache, attended

FUNCTION_NAMES = {name: name for name in ACTIVATIONS} | {"gelu": "gelu_erf"}
"""Name in :data:`celosia.arch.functions.FUNCTIONS` of each activation in descriptions."""


def forward(
    model: Description,
    weights: Weights,
    inputs: ArrayLike,
    cache: KvCache | None = None,
    *,
    source: bool = False,
) -> dict[str, Floats]:
    """Evaluate the float model; return its tensors by name, arrays [batch, rows, columns].

    ``inputs`` are features [batch, tokens, features], or tokens [batch, tokens] that continue the
    texts in ``cache``. ``source`` selects the encoder of an encoder-decoder. Raises
    :class:`InputError` for invalid ``inputs``.
    """
    cache, graph = KvCache() if cache is None else cache, network(model)
    chosen = graph.source if source else graph
    if chosen is None:
        raise InputError(f"Model {model.name} takes no source")
    return _Evaluation(model, weights, inputs, cache, chosen).run()


def unit_rows(x: Floats) -> Floats:
    """Return rows scaled to Euclidean length 1; rows of zeros do not change."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(np.divide(x, length, out=np.zeros_like(x), where=length > 0))


def check_tokens(
    model: TextDescription, tokens: NDArray[np.integer[Any]], length: int, *, source: bool = False
) -> None:
    """Raise :class:`InputError` if a token is not in the vocabulary, or a text has too many tokens.

    ``tokens`` [..., n] follow ``length`` earlier tokens of a text. If ``source`` is true,
    ``tokens`` are the source of an encoder-decoder, which must not be empty.
    """
    wrong = tokens[(tokens < 0) | (tokens >= model.vocabulary)]
    if wrong.size:
        raise InputError(
            f"Tokens of model {model.name} must be from 0 to {model.vocabulary - 1}, "
            f"not {wrong.flat[0]}"
        )
    total = length + tokens.shape[-1]
    if source and not 1 <= total <= model.source_positions:
        raise InputError(
            f"Model {model.name} takes sources of 1 to {model.source_positions} tokens, not {total}"
        )
    bounded = model.bounded or model.position == "learned"
    if not source and bounded and total > model.positions:
        raise InputError(f"Model {model.name} takes at most {model.positions} tokens, not {total}")


def rotate(x: Floats, angles: Floats) -> Floats:
    """Return ``x`` [..., n, head_dim] with each pair of columns (2j, 2j + 1) rotated.

    ``angles`` [n, head_dim / 2] has the angle of each row and pair (radians).
    """
    c, s = np.cos(angles), np.sin(angles)  # [n, head_dim / 2]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * c - odd * s, even * s + odd * c], axis=-1).reshape(x.shape)


class _Evaluation:
    """One evaluation of a graph."""

    def __init__(
        self,
        model: Any,
        weights: Weights,
        inputs: ArrayLike,
        cache: KvCache,
        graph: Network,
    ):
        self.model, self.weights, self.cache, self.graph = model, weights, cache, graph
        self.found: dict[str, Floats] = {}
        self.inputs = np.asarray(inputs)
        if graph.reads_tokens:
            if graph.encodes:
                check_tokens(model, self.inputs, 0, source=True)
                self.places = np.arange(self.inputs.shape[1])
                return
            check_tokens(model, self.inputs, cache.length)
        else:
            rows = accelerator_rows(model, weights, self.inputs)
            self.found["input"] = self.found[self.graph.input.name] = rows
        self.places = cache.reserve(self.inputs.shape[1])

    def run(self) -> dict[str, Floats]:
        for node in self.graph.nodes:
            self.found[node.target.name] = np.asarray(self._node(node))
        output = self._of(self.graph.output, self.graph.output)
        self.found["output"] = unit_rows(output) if self.model.unit else output
        return self.found

    def _of(self, value: Value, target: Value) -> Floats:
        """Return a value's first rows, the number that the target has."""
        rows = self.found[value.name]
        return rows[:, : target.rows] if target.rows else rows

    def _node(self, node: Node) -> Floats:
        match node:
            case Embedding():
                x = self.weights[node.words][self.inputs]  # [batch, n, dim]
                return np.asarray(
                    x + self.weights[node.positions][self.places] if node.positions else x
                )
            case Start():
                return self._start()
            case Linear():
                return self._linear(node)
            case Norm():
                return self._norm(node)
            case Convert():
                return self._of(node.source, node.target)
            case Rotary():
                return self._rotary(node)
            case Gate():
                return self.found[node.source.name] * self.found[node.up.name]
            case Attention():
                return self._attention(node)
            case Pool():
                return np.asarray(self.found[node.source.name].mean(axis=1, keepdims=True))

    def _start(self) -> Floats:
        row = int("class_token" in self.weights)
        x = np.zeros((len(self.inputs), self.places.size + row, self.model.dim))
        if row:
            x[:, 0] = self.weights["class_token"]
        return x + self.weights["positions"][: x.shape[1]] if "positions" in self.weights else x

    def _linear(self, node: Linear) -> Floats:
        y = self._of(node.source, node.target) @ self.weights[node.weight].T
        y = np.asarray(y + self.weights.get(node.bias, 0.0))
        if node.sums is not None:
            self.found[node.sums.name] = y
        if node.activation:
            y = FUNCTIONS[FUNCTION_NAMES[node.activation]](y)
        if node.target.home is Home.SOURCE:
            self.cache.store_source(node.target.name, self._split(y))
        return self._added(node, y)

    def _added(self, node: Linear | Attention, y: Floats) -> Floats:
        """Return a node's result with its gain and residual applied."""
        if node.gain:
            y = self.weights[node.gain] * y
        if node.residual is None:
            return y
        row = node.row if isinstance(node, Linear) else 0
        old = self.found[node.residual.name]
        return np.concatenate([old[:, :row], old[:, row:] + y], axis=1) if row else old + y

    def _norm(self, node: Norm) -> Floats:
        rows, model = self._of(node.source, node.target), self.model
        x = rows.reshape(*rows.shape[:-1], max(node.heads, 1), -1)  # [batch, rows, heads, columns]
        centred = x - x.mean(axis=-1, keepdims=True) if model.norm == "layernorm" else x
        variance = np.mean(centred * centred, axis=-1, keepdims=True) + model.epsilon
        scaled = centred / np.sqrt(variance) * self.weights[f"{node.name}.weight"]
        return np.asarray(scaled + self.weights.get(f"{node.name}.bias", 0.0)).reshape(rows.shape)

    def _heads(self, value: Value) -> Floats:
        """Return a value by head, [batch, heads, rows, head_dim], including all kept rows."""
        if value.home is Home.SOURCE:
            return self.cache.source_rows(value.name)
        heads = self._split(self.found[value.name])
        return self.cache.append(value.name, heads) if value.home is Home.CACHE else heads

    def _split(self, x: Floats) -> Floats:
        """Return [batch, rows, n * head_dim] as [batch, heads, rows, head_dim]."""
        return x.reshape(*x.shape[:2], -1, self.model.head_dim).transpose(0, 2, 1, 3)

    def _flat(self, x: Floats) -> Floats:
        """Return heads [batch, heads, rows, head_dim] concatenated along the columns."""
        return x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)

    def _rotary(self, node: Rotary) -> Floats:
        model = self.model
        pairs = np.arange(0, model.head_dim, 2)
        speeds = model.rotary_base ** (-pairs / model.head_dim)
        places = 0 * self.places if node.still else self.places
        angles = places[:, None] * self.weights.get("rotary_speeds", speeds)
        return self._flat(rotate(self._heads(node.source), angles))

    def _attention(self, node: Attention) -> Floats:
        model, prefix = self.model, node.prefix
        query, key, value = map(self._heads, (node.query, node.key, node.value))
        # Query heads of a key head are rows of one product, [batch, kv_heads, group * n, ...].
        rows = query.reshape(*key.shape[:2], -1, model.head_dim)
        scores = (rows @ key.swapaxes(-1, -2)).reshape(*query.shape[:3], -1)
        scores /= np.sqrt(model.head_dim)  # [batch, heads, n, all]
        scores[..., ~attended(node, self.cache, *scores.shape[2:])] = -np.inf
        self.found[f"{prefix}.scores"] = scores
        matrix = np.exp(scores - scores.max(axis=-1, keepdims=True))
        matrix /= matrix.sum(axis=-1, keepdims=True)
        if model.shaped:
            alpha, beta, gamma = (
                self.weights[f"{prefix}.{name}"][:, None, None]
                for name in ("alpha", "beta", "gamma")
            )
            n = scores.shape[-1]
            matrix = alpha * np.eye(n) + beta * matrix - gamma / n
        self.found[f"{prefix}.probabilities"] = matrix
        mixed = matrix.reshape(*rows.shape[:3], -1) @ value
        return self._added(node, self._flat(mixed.reshape(query.shape)))
