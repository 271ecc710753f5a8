"""The float reference of decoders of texts: whole texts, or token by token with a KV cache."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arch.errors import InputError
from arch.functions import FUNCTIONS
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Floats, Weights
from generators.reference.float_model import FUNCTION_NAMES, linear


@dataclass
class FloatCache:
    """The keys (rotated) and values of all tokens so far."""

    length: int = 0
    """Tokens so far."""
    keys: list[Floats] = field(default_factory=list)
    """Of each layer, [batch, kv_heads, length, head_dim]."""
    values: list[Floats] = field(default_factory=list)
    """Of each layer, [batch, kv_heads, length, head_dim]."""


def text_forward(
    model: TextDescription,
    weights: Weights,
    tokens: ArrayLike,
    cache: FloatCache | None = None,
    found: dict[str, Floats] | None = None,
) -> Floats:
    """Return the scores of all possible next tokens after each token, [batch, n, vocabulary].

    ``tokens`` [batch, n] follow those that ``cache`` holds, which takes them in; without it they
    begin a text. What is computed token by token is what is computed at once, but for rounding.

    ``found`` receives every tensor, [batch, n, columns]: ``embedding``, ``final`` (what the head
    takes), ``logits``, and of layer i, with names that start with ``layers.i.``:
    ``attention_input``, ``query`` and ``key`` (rotated), ``value``, ``context``, ``attention_sum``,
    ``mlp_input``, ``gate`` (before its activation, where there is one), ``up`` (likewise where
    there is no gate), ``hidden`` and ``mlp_sum``; and ``scores`` [batch, heads, n, all tokens],
    -inf at tokens to come.

    Raises :class:`InputError` where a token is not one of the vocabulary's, or where positions are
    learned and there are more places than the model has.
    """
    numbers = np.asarray(tokens)  # [batch, n]
    cache = FloatCache() if cache is None else cache
    found = {} if found is None else found
    check_tokens(model, numbers, cache.length)
    places = np.arange(cache.length, cache.length + numbers.shape[1])
    x = weights["words"][numbers]  # [batch, n, dim]
    if model.position == "learned":
        x = x + weights["positions"][places]
    found["embedding"] = x
    for layer in range(model.layers):
        prefix = f"layers.{layer}"
        h = found[f"{prefix}.attention_input"] = normalize(
            model, weights, f"{prefix}.attention_norm", x
        )
        x = x + _attention(model, weights, layer, h, places, cache, found)
        found[f"{prefix}.attention_sum"] = x
        h = found[f"{prefix}.mlp_input"] = normalize(model, weights, f"{prefix}.mlp_norm", x)
        x = x + _mlp(model, weights, prefix, h, found)
        found[f"{prefix}.mlp_sum"] = x
    cache.length += len(places)
    found["final"] = normalize(model, weights, "final_norm", x)
    head = weights["words" if model.tied else "head.weight"]  # [vocabulary, dim]
    found["logits"] = found["final"] @ head.T
    return found["logits"]


def check_tokens(model: TextDescription, tokens: NDArray[np.integer[Any]], length: int) -> None:
    """Raise :class:`InputError` where tokens [..., n] cannot follow ``length`` earlier ones."""
    wrong = tokens[(tokens < 0) | (tokens >= model.vocabulary)]
    if wrong.size:
        raise InputError(
            f"Tokens of model {model.name} must be from 0 to {model.vocabulary - 1}, "
            f"not {wrong.flat[0]}"
        )
    total = length + tokens.shape[-1]
    if model.position == "learned" and total > model.positions:
        raise InputError(f"Model {model.name} takes at most {model.positions} tokens, not {total}")


def normalize(model: TextDescription, weights: Weights, name: str, x: Floats) -> Floats:
    """Return rows normalized and then scaled by a norm's weights, and shifted by its biases."""
    centred = x - x.mean(axis=-1, keepdims=True) if model.norm == "layernorm" else x
    variance = np.mean(centred * centred, axis=-1, keepdims=True) + model.epsilon
    scaled = centred / np.sqrt(variance) * weights[f"{name}.weight"]
    return np.asarray(scaled + weights.get(f"{name}.bias", 0.0))


def rotary_angles(model: TextDescription, places: NDArray[np.int64]) -> Floats:
    """Return the angle of each pair of a head's columns at each place, [n, head_dim / 2]."""
    pairs = np.arange(0, model.head_dim, 2)
    return np.asarray(places[:, None] * model.rotary_base ** (-pairs / model.head_dim))


def rotate(x: Floats, angles: Floats) -> Floats:
    """Return pairs (2j, 2j + 1) of the columns of ``x`` [..., n, head_dim] rotated."""
    c, s = np.cos(angles), np.sin(angles)  # [n, head_dim / 2]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * c - odd * s, even * s + odd * c], axis=-1).reshape(x.shape)


def _attention(
    model: TextDescription,
    weights: Weights,
    layer: int,
    x: Floats,
    places: NDArray[np.int64],
    cache: FloatCache,
    found: dict[str, Floats],
) -> Floats:
    prefix = f"layers.{layer}"

    def heads(name: str) -> Floats:
        """Return a projection as [batch, heads of its kind, n, head_dim]."""
        split = linear(weights, f"{prefix}.{name}", x).reshape(*x.shape[:2], -1, model.head_dim)
        return split.transpose(0, 2, 1, 3)

    def flat(value: Floats) -> Floats:
        return value.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)

    query, key, value = heads("query"), heads("key"), heads("value")
    if model.position == "rotary":
        angles = rotary_angles(model, places)
        query, key = rotate(query, angles), rotate(key, angles)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        found[f"{prefix}.{name}"] = flat(tensor)
    for kept, new in ((cache.keys, key), (cache.values, value)):
        if layer < len(kept):
            kept[layer] = np.concatenate([kept[layer], new], axis=2)
        else:
            kept.append(new)
    keys, values = cache.keys[layer], cache.values[layer]  # [batch, kv_heads, all, head_dim]
    # The query heads of a key head are rows of one product, [batch, kv_heads, group * n, ...].
    rows = query.reshape(*keys.shape[:2], -1, model.head_dim)
    scores = (rows @ keys.swapaxes(-1, -2)).reshape(*query.shape[:3], -1)
    scores /= np.sqrt(model.head_dim)  # [batch, heads, n, all]
    if len(places) > 1:
        scores[..., np.arange(keys.shape[2]) > places[:, None]] = -np.inf
    found[f"{prefix}.scores"] = scores
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    context = flat((shares.reshape(*rows.shape[:3], -1) @ values).reshape(query.shape))
    found[f"{prefix}.context"] = context
    return linear(weights, f"{prefix}.output", context)


def _mlp(
    model: TextDescription, weights: Weights, prefix: str, x: Floats, found: dict[str, Floats]
) -> Floats:
    function = FUNCTIONS[FUNCTION_NAMES[model.activation]]
    up = found[f"{prefix}.up"] = linear(weights, f"{prefix}.up", x)
    if model.gated:
        gate = found[f"{prefix}.gate"] = linear(weights, f"{prefix}.gate", x)
        hidden = function(gate) * up
    else:
        hidden = function(up)
    found[f"{prefix}.hidden"] = hidden
    return linear(weights, f"{prefix}.down", hidden)
