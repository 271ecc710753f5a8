"""A decoder of texts in integers, as the machine computes it, before any tiling or placing.

Of each token, with ``x`` the residual stream in INT16, all other tensors in INT8 but for scores
and logits, and the equations those of docs/numerics.md::

    x = embedding[token]                      (2): MAP to INT16, learned positions added
    h = norm(x)                               (4)
    q, k = rotate(h Wq), rotate(h Wk)         (9)
    v = h Wv                                  (1)
    p = softmax(q k')                         (1) to INT16, (3)
    x = x + (p v) Wo                          (1), (2)
    h = norm(x)                               (4)
    x = x + (silu(h Wg) * (h Wu)) Wd          (2), (10); or x + gelu(h Wu) Wd
    logits = norm(x) Wh                       (4), (1) to INT16
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from arch.errors import InputError
from generators.frontend.text_description import TextDescription
from generators.graph import Ints, Rescale
from generators.reference.text_model import check_tokens
from sim.matmul import multiply
from sim.norm import normalize
from sim.requantize import INT16_MAX, INT16_MIN, requantize, saturate16
from sim.rotary import rotate, times
from sim.softmax import softmax
from sim.table import lookup

INT8_MIN, INT8_MAX = -128, 127
ROTARY_STEPS = 256
"""Steps of a query or key in front of the rotation in an INT8 behind it, equation (9)."""
TIMES_STEPS = 4096
"""Steps of a product in the INT8 that it becomes, equation (10)."""


@dataclass(frozen=True)
class Projection:
    """A linear layer: ``rescale(h @ weight)``."""

    weight: Ints
    """Symmetric INT8 weights, [k, n]."""
    rescale: Rescale
    """Of each column, [n]."""


@dataclass(frozen=True)
class DecoderNorm:
    """``rescale(normalize(x))``, to INT8."""

    rescale: Rescale
    """Of each column, [dim]."""
    eps: int
    """The added variance of equation (4)."""


@dataclass(frozen=True, kw_only=True)
class DecoderLayer:
    """The integers of a layer."""

    attention_norm: DecoderNorm
    query: Projection
    """Queries, INT8 [heads * key_dim]; with rotary positions they are rotated as they leave."""
    key: Projection
    """Keys, to the KV cache [kv_heads * key_dim]; with rotary positions they are rotated as they
    leave, to INT16 where ``kept_key`` follows."""
    kept_key: Rescale | None
    """From rotated keys in INT16 to the KV cache, of each column, [kv_heads * key_dim]."""
    value: Projection
    """Values, to the KV cache [kv_width]."""
    scores: Rescale
    """From queries times keys to INT16 in 2**-8 octaves, of each query head, [heads]."""
    context: Rescale
    """From probabilities times values to INT8, of each column, [heads * head_dim]."""
    output: Projection
    """To INT16, added to the residual stream."""
    mlp_norm: DecoderNorm
    gate: Projection | None
    """To INT8 [ffn], in front of the table; None where the MLP has no gate."""
    up: Projection
    """To INT8 [ffn]: what leaves is multiplied by the gate; without one it goes to the table."""
    table: Ints
    """The activation function as a table, [256]."""
    gate_zero: int
    """Zero point of the table's results where the MLP has a gate, otherwise 0: the zero point is
    in the bias of ``down`` then."""
    down: Projection
    """To INT16, added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A decoder's integers."""

    description: TextDescription
    kv_bits: int
    """Width of the keys and values that are kept, 8 or 4 (bits): what goes to the KV cache is
    clamped to it."""
    key_dim: int
    """Columns of a head's queries and keys: ``head_dim``, and of some pairs another two."""
    embedding: Ints
    """The vocabulary's vectors in INT8, [vocabulary, dim]."""
    embedding_rescale: Rescale
    """From them to the residual stream, of each column, [dim]."""
    positions: Ints | None
    """What is added to the residual stream at each place, INT16 [positions, dim]; None where
    positions are rotary."""
    rotary: Ints | None
    """Cosine and sine in Q1.15 of each pair of a head's columns, [places, key_dim]; None where
    positions are learned."""
    probabilities: Rescale
    """From Q0.24 to INT8 without zero point, of all columns alike, [1]."""
    layers: tuple[DecoderLayer, ...]
    final_norm: DecoderNorm
    head: Projection
    """To INT16 [vocabulary], one step for all."""
    stream_scale: float
    """The real value of a step of the residual stream."""
    logit_scale: float
    """The real value of a step of the logits."""

    @property
    def places(self) -> int:
        """Places that texts have, as far as the tables of positions go (tokens)."""
        table = self.positions if self.rotary is None else self.rotary
        assert table is not None
        return len(table)


@dataclass
class DecoderCache:
    """The keys (rotated) and values of all tokens so far, INT8 or INT4.

    With ``slots`` of 0 each token attends to all before it. Otherwise to those that a cache of so
    many slots holds: the first ``sinks`` and the last ``slots - sinks``, itself one of these (Xiao
    et al. 2024, "Efficient Streaming Language Models with Attention Sinks"). Token ``t`` is in slot
    ``t``, or ``sinks + (t - sinks) % (slots - sinks)`` where there is none; keys stay as they were
    rotated. This model keeps all of them and masks those that are overwritten.
    """

    slots: int = 0
    sinks: int = 0
    length: int = 0
    """Tokens so far."""
    keys: list[Ints] = field(default_factory=list)
    """Of each layer, [kv_heads, length, key_dim]."""
    values: list[Ints] = field(default_factory=list)
    """Of each layer, [kv_heads, length, head_dim]."""

    def __post_init__(self) -> None:
        """Check slots and sinks."""
        if self.slots < 0 or (self.slots and not 0 <= self.sinks < self.slots):
            raise InputError(
                f"Cache slots must be 0 or more than the sinks, but slots is {self.slots} and "
                f"sinks is {self.sinks}"
            )

    def seen(self, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which of all tokens each of the ``count`` last ones attends to, [count, length].

        ``length`` counts them already.
        """
        token = np.arange(self.length)
        last = token[self.length - count :, None]  # [count, 1]
        kept = (token < self.sinks) | (token > last - (self.slots - self.sinks))
        return np.asarray((token <= last) & (kept | (self.slots == 0)))


def decode(
    decoder: Decoder,
    tokens: ArrayLike,
    cache: DecoderCache | None = None,
    found: dict[str, Ints] | None = None,
) -> Ints:
    """Return the logits behind each of some tokens, INT16 [n, vocabulary].

    ``tokens`` [n] follow those that ``cache`` holds, which takes them in; without it they begin a
    text. The greedy choice is the lowest of the tokens whose logit is the largest. What is decoded
    at once equals what is decoded token by token.

    ``found`` receives every tensor that the machine writes, [n, columns]: ``embedding``,
    ``final_norm``, ``logits``, and of layer i, with names that start with ``layers.i.``:
    ``attention_norm``, ``query``, ``key``, ``value``, ``scores`` and ``probabilities``
    [heads, n, all tokens], ``context``, ``attention_sum``, ``mlp_norm``, ``gate`` (behind its
    table), ``hidden`` and ``mlp_sum``.

    Raises :class:`InputError` where a token is not one of the vocabulary's, or where there are
    more places than the tables of positions have.
    """
    numbers = np.asarray(tokens, np.int64)  # [n]
    cache = DecoderCache() if cache is None else cache
    found = {} if found is None else found
    check_tokens(decoder.description, numbers, 0)
    first, cache.length = cache.length, cache.length + len(numbers)
    if cache.length > decoder.places:
        raise InputError(
            f"Model {decoder.description.name} takes at most {decoder.places} tokens, "
            f"not {cache.length}"
        )
    places = np.arange(first, cache.length)
    x = wide(decoder.embedding[numbers], decoder.embedding_rescale)  # [n, dim]
    if decoder.positions is not None:
        x = saturate(x + decoder.positions[places])
    found["embedding"] = x
    for index, layer in enumerate(decoder.layers):
        tensors = {"attention_norm": norm(decoder, layer.attention_norm, x)}
        context = _attention(decoder, index, places, cache, tensors)
        x = saturate(x + wide(context, layer.output))
        tensors["attention_sum"] = x
        tensors["mlp_norm"] = norm(decoder, layer.mlp_norm, x)
        x = saturate(x + wide(_hidden(layer, tensors), layer.down))
        tensors["mlp_sum"] = x
        found |= {f"layers.{index}.{name}": tensor for name, tensor in tensors.items()}
    found["final_norm"] = norm(decoder, decoder.final_norm, x)
    found["logits"] = wide(found["final_norm"], decoder.head)
    return found["logits"]


def narrow(values: Ints, rescale: Rescale) -> Ints:
    """Return values requantized to INT8."""
    return _rescaled(values, rescale, INT8_MIN, INT8_MAX)


def wide(values: Ints, by: Rescale | Projection) -> Ints:
    """Return values, or their products with weights, requantized to INT16."""
    if isinstance(by, Projection):
        values, by = multiply(values, by.weight), by.rescale
    return _rescaled(values, by, INT16_MIN, INT16_MAX)


def saturate(values: Ints) -> Ints:
    """Return values clamped to INT16."""
    return saturate16(values).astype(np.int64)


def norm(decoder: Decoder, step: DecoderNorm, x: Ints) -> Ints:
    """Return rows of the residual stream normalized, in INT8."""
    value, _ = normalize(x, rms=decoder.description.norm == "rmsnorm", eps=step.eps)
    return narrow(value.astype(np.int64), step.rescale)


def _rescaled(values: Ints, by: Rescale, low: int, high: int) -> Ints:
    found = requantize(values, by.bias, by.multiplier, by.shift, 0, low, high)
    return found.astype(np.int64)


def _attention(
    decoder: Decoder, index: int, places: Ints, cache: DecoderCache, found: dict[str, Ints]
) -> Ints:
    """Return what attention gives to its last linear layer, [n, query_width]."""
    model, layer, h = decoder.description, decoder.layers[index], found["attention_norm"]
    count, group = len(places), model.group
    half = 1 << (decoder.kv_bits - 1)

    def turned(projection: Projection, then: Rescale | None) -> Ints:
        y = wide(h, projection)
        if decoder.rotary is None:
            return y
        pairs = np.tile(decoder.rotary[places], y.shape[1] // decoder.key_dim)
        if then is None:
            return rotate(y, pairs, INT8_MIN, INT8_MAX).astype(np.int64)
        y = rotate(y, pairs, INT16_MIN, INT16_MAX, wide=True).astype(np.int64)
        return narrow(y, then)

    # Clamped to INT8 or INT4, INT16 is what would have been requantized to it.
    found["query"] = turned(layer.query, None).clip(INT8_MIN, INT8_MAX)
    found["key"] = turned(layer.key, layer.kept_key).clip(-half, half - 1)
    found["value"] = wide(h, layer.value).clip(-half, half - 1)
    for kept, name in ((cache.keys, "key"), (cache.values, "value")):
        split = found[name].reshape(count, model.kv_heads, -1).transpose(1, 0, 2)
        if index < len(kept):
            kept[index] = np.concatenate([kept[index], split], axis=1)
        else:
            kept.append(split)
    queries = found["query"].reshape(count, model.heads, -1).transpose(1, 0, 2)
    seen = np.tile(cache.seen(count), (group, 1))  # [group * n, all]
    scores, probabilities, context = [], [], []
    for head, (keys, values) in enumerate(zip(cache.keys[index], cache.values[index], strict=True)):
        # The query heads of a key head are rows of one product.
        query = queries[head * group : (head + 1) * group]  # [group, n, key_dim]
        sums = multiply(query.reshape(-1, decoder.key_dim), keys.T)  # [group * n, all]
        row = np.repeat(np.arange(head * group, (head + 1) * group), count)[:, None]
        by = Rescale(layer.scores.bias[row], layer.scores.multiplier[row], layer.scores.shift[row])
        scores.append(_rescaled(sums, by, INT16_MIN, INT16_MAX))
        share = softmax(scores[-1], seen)  # Q0.24
        probabilities.append(narrow(share, decoder.probabilities))
        context.append(multiply(probabilities[-1], values).reshape(group, count, -1))
    found["scores"] = np.concatenate(scores).reshape(model.heads, count, -1)
    found["probabilities"] = np.concatenate(probabilities).reshape(model.heads, count, -1)
    sums = np.concatenate(context).transpose(1, 0, 2).reshape(count, -1)  # [n, query_width]
    found["context"] = narrow(sums, layer.context)
    return found["context"]


def _hidden(layer: DecoderLayer, found: dict[str, Ints]) -> Ints:
    """Return what the MLP gives to its last linear layer, [n, ffn]."""
    h = found["mlp_norm"]
    up = wide(h, layer.up)
    if layer.gate is None:
        found["hidden"] = lookup(layer.table, up.clip(INT8_MIN, INT8_MAX))
        return found["hidden"]
    gate = wide(h, layer.gate).clip(INT8_MIN, INT8_MAX)
    found["gate"] = lookup(layer.table, gate)
    product = times(up, found["gate"] - layer.gate_zero, INT8_MIN, INT8_MAX)
    found["hidden"] = product.astype(np.int64)
    return found["hidden"]
