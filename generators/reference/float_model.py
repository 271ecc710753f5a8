"""The float reference: any described model, forward, with every intermediate tensor."""

import numpy as np
from numpy.typing import NDArray

from arch.functions import FUNCTIONS
from generators.frontend.description import ACTIVATIONS, ModelDescription
from generators.frontend.embedding import check_shape, lookup
from generators.frontend.weights import Floats, Weights

FUNCTION_NAMES = {name: name for name in ACTIVATIONS} | {"gelu": "gelu_erf"}
"""The name in :data:`arch.functions.FUNCTIONS` of each activation of a description."""


def forward(
    model: ModelDescription, weights: Weights, inputs: NDArray[np.generic]
) -> dict[str, Floats]:
    """Return every tensor of a batch by name; ``output`` is [batch, rows, columns].

    ``inputs`` is [batch, tokens, features], or token numbers [batch, tokens]; all of a batch have
    the same length. ``input`` is what the machine is given, ``embedding`` what it works on, before
    its norm if it has one (``embedding_norm``). Tensors of layer i have names starting with
    ``layers.i.``: ``attention_input``, ``query``, ``key``, ``value`` [batch, sequence, width],
    ``scores`` and ``probabilities`` [batch, heads, sequence, sequence], ``context``,
    ``attention``, ``attention_sum``, ``mlp_input``, ``up``, ``hidden``, ``mlp``, ``mlp_sum`` and
    ``stream``, the block's output; where a block normalizes its sums, also ``attention_norm``.
    ``head_up`` and ``head_hidden`` are the hidden layer in front of a classifier, before and behind
    its activation.

    Raises :class:`InputError` where the inputs have another shape.
    """
    found: dict[str, Floats] = {}
    if model.embedding == "linear":
        check_shape(model, inputs)
        found["input"] = np.asarray(inputs, np.float64)
        x = linear(weights, "embed", found["input"])  # [batch, tokens, dim]
        if model.class_token:
            token = np.broadcast_to(weights["class_token"], (len(x), 1, model.dim))
            x = np.concatenate([token, x], axis=1)  # [batch, sequence, dim]
        if model.positions == "learned":
            x = x + weights["positions"][: x.shape[1]]
    else:
        found["input"] = x = lookup(model, weights, inputs)  # [batch, sequence, dim]
    found["embedding"] = x
    if model.embedding_norm:
        found["embedding_norm"] = x = normalize(model, weights, "embedding_norm", x)
    for layer in range(model.layers):
        x = _block(model, weights, f"layers.{layer}", x, found)
    if model.pooling == "class":
        x = x[:, :1]
    if model.final_norm:
        x = normalize(model, weights, "final_norm", x)
    found["final"] = x
    if model.pooling == "mean":
        x = x.mean(axis=1, keepdims=True)
    found["pooled"] = x
    if model.head_hidden:
        x = found["head_up"] = linear(weights, "head_hidden", x)
        x = found["head_hidden"] = FUNCTIONS[FUNCTION_NAMES[model.head_activation]](x)
    x = linear(weights, "head", x) if model.classes else x
    found["raw_output"] = x
    found["output"] = unit_rows(x) if model.unit else x
    return found


def unit_rows(x: Floats) -> Floats:
    """Return rows scaled to length 1; a row of zeros stays."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(np.divide(x, length, out=np.zeros_like(x), where=length > 0))


def linear(weights: Weights, name: str, x: Floats) -> Floats:
    """Return ``x`` times a weight matrix [outputs, inputs], plus its bias if there is one."""
    y = x @ weights[f"{name}.weight"].T
    return np.asarray(y + weights.get(f"{name}.bias", 0.0))


def normalize(model: ModelDescription, weights: Weights, name: str, x: Floats) -> Floats:
    """Return rows normalized and then scaled by a norm's weights, and shifted by its biases."""
    centred = x - x.mean(axis=-1, keepdims=True) if model.norm == "layernorm" else x
    variance = np.mean(centred * centred, axis=-1, keepdims=True) + model.epsilon
    scaled = centred / np.sqrt(variance) * weights[f"{name}.weight"]
    return np.asarray(scaled + weights.get(f"{name}.bias", 0.0))


def _block(
    model: ModelDescription, weights: Weights, prefix: str, x: Floats, found: dict[str, Floats]
) -> Floats:
    normed, pre = model.norm != "none", model.placement == "pre"

    def before(name: str, value: Floats) -> Floats:
        norm = "norm" if model.parallel else f"{name}_norm"
        if normed and pre:
            value = normalize(model, weights, f"{prefix}.{norm}", value)
        found[f"{prefix}.{name}_input"] = value
        return value

    def after(name: str, value: Floats) -> Floats:
        found[f"{prefix}.{name}_sum"] = value
        if normed and not pre:
            value = normalize(model, weights, f"{prefix}.{name}_norm", value)
            found[f"{prefix}.{name}_norm"] = value
        return value

    skip = x if model.skip else np.zeros_like(x)
    value = before("attention", x)
    attention = _attention(model, weights, prefix, value, found)
    if model.parallel:
        attention = weights[f"{prefix}.attention_gain"] * attention
    x = after("attention", skip + attention)
    if model.parallel:
        x = x + weights[f"{prefix}.mlp_gain"] * _mlp(model, weights, prefix, value, found)
    else:
        skip = x if model.skip else np.zeros_like(x)
        x = skip + _mlp(model, weights, prefix, before("mlp", x), found)
    x = after("mlp", x)
    found[f"{prefix}.stream"] = x
    return x


def _attention(
    model: ModelDescription, weights: Weights, prefix: str, x: Floats, found: dict[str, Floats]
) -> Floats:
    def heads(value: Floats) -> Floats:
        """Return [batch, sequence, n * head_dim] as [batch, heads, sequence, head_dim]."""
        split = value.reshape(*value.shape[:2], -1, model.head_dim).transpose(0, 2, 1, 3)
        return np.repeat(split, model.heads // split.shape[1], axis=1)

    query = linear(weights, f"{prefix}.query", x)
    key = linear(weights, f"{prefix}.key", x)
    value = linear(weights, f"{prefix}.value", x) if model.values else x
    scores = heads(query) @ heads(key).swapaxes(-1, -2) / np.sqrt(model.head_dim)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    matrix = exponentials / exponentials.sum(axis=-1, keepdims=True)
    if model.shaped:
        alpha, beta, gamma = (
            weights[f"{prefix}.{name}"][:, None, None] for name in ("alpha", "beta", "gamma")
        )
        matrix = alpha * np.eye(x.shape[1]) + beta * matrix - gamma / x.shape[1]
    context = (matrix @ heads(value)).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    names = ("query", "key", "value", "scores", "probabilities", "context")
    for name, tensor in zip(names, (query, key, value, scores, matrix, context), strict=True):
        found[f"{prefix}.{name}"] = np.asarray(tensor)
    attention = linear(weights, f"{prefix}.output", context) if model.output else context
    found[f"{prefix}.attention"] = attention
    return np.asarray(attention)


def _mlp(
    model: ModelDescription, weights: Weights, prefix: str, x: Floats, found: dict[str, Floats]
) -> Floats:
    up = linear(weights, f"{prefix}.up", x)
    hidden = FUNCTIONS[FUNCTION_NAMES[model.activation]](up)
    found[f"{prefix}.up"], found[f"{prefix}.hidden"] = up, hidden
    found[f"{prefix}.mlp"] = linear(weights, f"{prefix}.down", hidden)
    return found[f"{prefix}.mlp"]
