"""Decoders in integers: at once and token by token, through a ring, and against float."""

import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.operations import Attention, Linear
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder
from celosia.generators.quantize.steps import best_range, best_step, kept_range, upper_step
from celosia.generators.quantize.texts import sample_texts
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.sim.pairs import score_sums, upper
from tests.support.decoders import random_text_weights

FIELDS = {"name": "toy", "vocabulary": 23, "positions": 24, "dim": 16, "layers": 2, "ffn": 20}
LLAMA = TextDescription(**FIELDS, heads=4, kv_heads=2, tied=False)
GPT2 = TextDescription(
    **FIELDS,
    heads=2,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="gelu_tanh",
    bias=True,
)
FEW = {"texts": 4, "length": 24}


def quantized(model, **options) -> Decoder:
    return quantize_decoder(model, random_text_weights(model), 1, Quantization(**FEW, **options))


TEXT = np.random.default_rng(7).integers(0, 23, 24)


@pytest.mark.parametrize("kv_bits", [8, 4])
@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_integers_follow_the_float_model(model, kv_bits) -> None:
    decoder = quantized(model, kv_bits=kv_bits)
    exact = forward(model, random_text_weights(model), TEXT[None])["logits"][0]
    tensors = evaluate(decoder, TEXT)
    logits = tensors["logits"]
    error = logits * decoder.output.scale - exact
    assert np.sqrt(np.mean(error**2)) < (0.08 if kv_bits == 8 else 0.25) * exact.std()
    for name, tensor in tensors.items():
        wide = name.endswith(("scores", "logits", "embedding", "sum", "sums", "rotated"))
        wide |= name.endswith("up") and model.gated
        bound = 1 << 15 if wide else 128
        assert tensor.min() >= -bound, name
        assert tensor.max() < bound, name
    weights = [decoder.embedding.words]
    weights += [op.weight for op in decoder.ops if isinstance(op, Linear)]
    assert max(np.abs(weight).max() for weight in weights) == 127


@pytest.mark.parametrize("slots", [0, 7])
@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_token_by_token_equals_at_once(model, slots) -> None:
    decoder = quantized(model)
    whole = evaluate(decoder, TEXT, KvCache(slots, 2 if slots else 0))["logits"]
    cache = KvCache(slots, 2 if slots else 0)
    parts = [
        evaluate(decoder, TEXT[:5], cache)["logits"],
        evaluate(decoder, TEXT[5:6], cache)["logits"],
    ]
    parts += [evaluate(decoder, [token], cache)["logits"] for token in TEXT[6:]]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    if slots:
        assert not np.array_equal(whole, evaluate(decoder, TEXT)["logits"])


def test_what_is_seen_is_what_a_ring_holds() -> None:
    slots, sinks, length = 7, 2, 30
    cache = KvCache(slots, sinks)
    ring = {}
    for token in range(length):
        slot = token if token < slots else sinks + (token - sinks) % (slots - sinks)
        ring[slot] = token
        cache.length = token + 1
        assert set(np.flatnonzero(cache.seen(1)[0])) == set(ring.values())
    np.testing.assert_array_equal(cache.seen(3)[2], cache.seen(1)[0])
    assert KvCache(length=4).seen(2).tolist() == [[True, True, True, False], [True] * 4]


def test_more_places_and_columns_kept_whole() -> None:
    decoder, plain = quantized(LLAMA, places=40, kv_bits=4), quantized(LLAMA, places=40)
    assert (decoder.places, decoder.rotary.shape) == (40, (40, 4))
    assert decoder.full_width_key_columns == 2
    # The pair that turns slowest comes first.
    np.testing.assert_array_equal(decoder.rotary, plain.rotary[:, [2, 3, 0, 1]])
    long = np.tile(TEXT, 2)[:40]
    assert evaluate(decoder, long)["logits"].shape == (40, 23)
    for none in (plain, quantized(LLAMA, kv_bits=4, whole=0)):
        assert none.full_width_key_columns == 0


def test_large_scores_keep_off_the_upper_end() -> None:
    weights = {
        name: tensor * (8 if name.endswith(("query.weight", "key.weight")) else 1)
        for name, tensor in random_text_weights(LLAMA).items()
    }
    decoder = quantize_decoder(LLAMA, weights, 1, Quantization(**FEW, kv_bits=4))
    zeros = np.zeros(4, np.int64)
    lowered = [
        tuple(
            replace(op, scores=replace(op.scores, bias=zeros)) if isinstance(op, Attention) else op
            for op in layer
        )
        for layer in decoder.layers
    ]

    def saturated(candidate: Decoder) -> int:
        tensors = evaluate(candidate, TEXT)
        scores = np.stack([tensors[f"layers.{layer}.scores"] for layer in range(2)])
        return int(np.sum(np.any((scores == 32767) & np.tri(24, dtype=bool), axis=3)))

    assert 3 * saturated(decoder) < saturated(replace(decoder, layers=tuple(lowered)))


def test_texts_are_drawn_from_the_model() -> None:
    weights = random_text_weights(GPT2)
    told = []
    samples = sample_texts(
        GPT2, weights, 5, count=400, length=3, seed=0, progress=lambda *done: told.append(done)
    )
    texts = samples.tokens
    assert texts.shape == (400, 3)
    assert told == [(1, 3), (2, 3), (3, 3)]
    tensors = forward(GPT2, weights, texts)
    others = ("scores", "probabilities", "output")
    assert {name for name in tensors if not name.endswith(others)} == set(samples.rows)
    for name, rows in samples.rows.items():
        np.testing.assert_allclose(rows, tensors[name].reshape(1200, -1), atol=1e-9)
    assert (texts[:, 0] == 5).all()
    logits = forward(GPT2, weights, [[5]])["logits"][0, 0]
    share = np.exp(logits) / np.exp(logits).sum()
    counted = np.bincount(texts[:, 1], minlength=23) / 400
    np.testing.assert_allclose(counted, share, atol=4 * np.sqrt(0.25 / 400))


def test_steps_lose_least() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (5000, 2)) * [1, 3] + [10, 0]
    middle, steps = best_range(values, 4)
    code = np.clip(np.rint((values - middle) / steps), -8, 7)
    error = np.sqrt(np.mean((code * steps + middle - values) ** 2, axis=0))
    # Max 1960, "Quantizing for Minimum Distortion": 16 uniform levels lose 0.1075 of a normal.
    np.testing.assert_allclose(error / [1, 3], 0.1075, atol=0.01)
    step, other = best_range(values, 4, together=2)[1]
    assert step == other == pytest.approx(steps[1], rel=0.2)
    assert best_step(np.zeros(3), 127) == 1 / 127
    assert best_step(np.array([1.0, -2.54]), 127) == pytest.approx(0.02)


def test_upper_bits_lose_least() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, 5000)
    step = 16 * upper_step(values, 4)
    kept = (np.clip(np.floor(values / step), -8, 7) + 0.5) * step
    # As Max 1960, whose 16 levels lie about 0 like these.
    assert np.sqrt(np.mean((kept - values) ** 2)) == pytest.approx(0.1075, abs=0.01)
    middle, fine = kept_range(values[:, None] + 5, 4)
    code = np.clip(np.rint((values + 5 - middle) / fine), -128, 127).astype(int)
    error = (upper(code, 4) + 0.5) * 16 * fine + middle - values - 5
    assert np.sqrt(np.mean(error**2)) == pytest.approx(0.1075, abs=0.01)


def test_columns_kept_whole_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    queries, keys = rng.integers(-128, 128, (3, 6)), rng.integers(-128, 128, (9, 6))
    assert np.array_equal(score_sums(queries, keys, 4, 6), queries @ keys.T)
    # But for a constant of each query, which softmax does not see.
    some = score_sums(queries, keys, 4, 2)
    wanted = queries[:, 2:] @ (16 * (keys[:, 2:] >> 4)).T + queries[:, :2] @ (keys[:, :2] - 8).T
    assert np.array_equal(some, wanted)
    assert np.array_equal(score_sums(queries, keys, 4, 0), queries @ (keys >> 4).T)


def refused(message, call, *arguments, **fields) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(*arguments, **fields)


def test_what_is_refused() -> None:
    refused("Bits of keys and values must be 8 or 4, not 5", Quantization, kv_bits=5)
    refused("Balance of columns must be from 0 to 1, not 2", Quantization, balance=2)
    message = "Key columns that keep 8 bits must not be negative, not -1"
    refused(message, Quantization, kv_bits=4, whole=-1)
    message = "Key columns that keep 8 bits need kv_bits 4, but they are 2 and kv_bits is 8"
    refused(message, Quantization, whole=2)
    message = "Heads of 4 columns have no 5 that keep 8 bits"
    refused(message, quantized, LLAMA, kv_bits=4, whole=5)
    message = "Sampled texts' count must be positive, not 0"
    weights = random_text_weights(GPT2)
    refused(message, quantize_decoder, GPT2, weights, 1, Quantization(texts=0))
    decoder = quantized(GPT2)
    refused("Tokens of model toy must be from 0 to 22, not 23", evaluate, decoder, [23])
    for model in (LLAMA, GPT2):
        message = "Model toy takes at most 24 tokens, not 25"
        refused(message, evaluate, quantized(model), np.ones(25))
    message = "Cache slots must be 0 or more than the sinks, but slots is 2 and sinks is 2"
    refused(message, KvCache, 2, 2)
