"""Descriptions of decoders and their float reference, against plain loops and against real text."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.base_description import read_fields
from celosia.generators.frontend.llama2c import Llama2cTokenizer, load_llama2c
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from tests.support.decoders import random_text_weights

FIELDS = {
    "name": "toy",
    "vocabulary": 11,
    "positions": 9,
    "dim": 12,
    "layers": 2,
    "heads": 3,
    "ffn": 10,
}
LLAMA = TextDescription(**{**FIELDS, "heads": 6}, kv_heads=3, tied=False)
GPT2 = TextDescription(
    **FIELDS,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="gelu_tanh",
    bias=True,
)
STORIES = Path(__file__).parents[1] / "examples" / "stories260k"


def slow_logits(model, weights, tokens):
    """One token after the other, in loops over heads and columns."""

    def norm(name, x):
        x = x - sum(x) / len(x) if model.norm == "layernorm" else x
        x = x / math.sqrt(sum(x * x) / len(x) + model.epsilon)
        return x * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0)

    def linear(name, x):
        return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0)

    def turned(x, place):
        if model.position == "learned":
            return x
        x = x.astype(complex)[0::2] + 1j * x[1::2]
        angles = [place / model.rotary_base ** (2 * j / model.head_dim) for j in range(len(x))]
        x = x * np.exp(1j * np.array(angles))
        return np.stack([x.real, x.imag], axis=1).ravel()

    def act(x):
        if model.activation == "silu":
            return x / (1 + np.exp(-x))
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    kept, logits, d = {}, [], model.head_dim
    for place, token in enumerate(tokens):
        x = weights["words"][token]
        if model.position == "learned":
            x = x + weights["positions"][place]
        for layer in range(model.layers):
            at = f"layers.{layer}"
            h = norm(f"{at}.attention_norm", x)
            heads = []
            for head in range(model.heads):
                share = head * model.kv_heads // model.heads
                query = linear(f"{at}.query", h)[head * d : (head + 1) * d]
                key = linear(f"{at}.key", h)[share * d : (share + 1) * d]
                value = linear(f"{at}.value", h)[share * d : (share + 1) * d]
                past = kept.setdefault((layer, head), [])
                past.append((turned(key, place), value))
                scores = [turned(query, place) @ key / math.sqrt(d) for key, _ in past]
                shares = np.exp(scores) / sum(np.exp(scores))
                heads.append(sum(p * v for p, (_, v) in zip(shares, past, strict=True)))
            x = x + linear(f"{at}.output", np.concatenate(heads))
            h = norm(f"{at}.mlp_norm", x)
            up = linear(f"{at}.up", h)
            hidden = act(linear(f"{at}.gate", h)) * up if model.gated else act(up)
            x = x + linear(f"{at}.down", hidden)
        head = weights["words" if model.tied else "head.weight"]
        logits.append(head @ norm("final_norm", x))
    return np.array(logits)


@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_it_is_the_plain_decoder_at_once_and_token_by_token(model) -> None:
    weights = random_text_weights(model)
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, (2, 9))
    tensors = forward(model, weights, tokens)
    logits = tensors["logits"]
    for rows, row in zip(logits, tokens, strict=True):
        np.testing.assert_allclose(rows, slow_logits(model, weights, row), atol=1e-9)
    cache = KvCache()
    parts = [forward(model, weights, tokens[:, a:b], cache)["logits"] for a, b in ((0, 4), (4, 5))]
    parts += [forward(model, weights, tokens[:, [i]], cache)["logits"] for i in range(5, 9)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), logits, atol=1e-9)
    assert tensors["layers.1.hidden"].shape == (2, 9, model.ffn)
    assert tensors["layers.1.key"].shape == (2, 9, model.kv_width)


def test_stories260k_tells_the_documented_text() -> None:
    model, weights = load_llama2c(STORIES / "stories260K.bin")
    tokenizer = Llama2cTokenizer(STORIES / "tok512.bin", model.vocabulary)
    cache, tokens = KvCache(), [tokenizer.begin]
    for _ in range(256):
        logits = forward(model, weights, [tokens[-1:]], cache)["logits"]
        tokens.append(int(logits[0, -1].argmax()))
    documented = (STORIES / "greedy.txt").read_text("utf-8").strip()
    assert len(documented) > 500
    assert tokenizer.decode(tokens).startswith(documented)


def refused(error_type, message, call, *arguments, **fields) -> None:
    with pytest.raises(error_type, match=f"^{re.escape(message)}$"):
        call(*arguments, **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "Model field dim must be positive, not 0"),
        ({"kv_heads": -1}, "Model field kv_heads must not be negative, not -1"),
        ({"dim": 13}, "Model field dim must be a multiple of heads where head_dim is not given, "
                      "but dim is 13 and heads is 3"),
        ({"kv_heads": 2}, "Model field heads must be a multiple of kv_heads, but heads is 3 and "
                          "kv_heads is 2"),
        ({"head_dim": 3}, "Model field head_dim must be even where position is rotary, not 3"),
        ({"rotary_base": 1.0}, "Model field rotary_base must be more than 1, not 1.0"),
        ({"position": "alibi"}, "Model field position must be one of rotary, learned, "
                                "not 'alibi'"),
    ],
)  # fmt: skip
def test_descriptions_that_are_refused(changes, message) -> None:
    refused(ValueError, message, TextDescription, **{**FIELDS, **changes})


def test_fields_of_a_wrong_type() -> None:
    message = "Model field gated must be true or false, not 1"
    refused(TypeError, message, TextDescription, **FIELDS, gated=1)


def test_a_gate_is_a_projection_of_gated_models_only() -> None:
    names = ["query", "key", "value", "output", "gate", "up", "down"]
    assert [*LLAMA.projections] == names
    assert [*GPT2.projections] == [name for name in names if name != "gate"]


def test_descriptions_are_written_and_read(tmp_path) -> None:
    path = tmp_path / "model.toml"
    for model in (LLAMA, GPT2):
        path.write_text(model.to_toml())
        assert read_fields(path, TextDescription) == model
    path.write_text("name = 'toy'\ntokens = 3")
    with pytest.raises(ValueError, match=r"^Unknown model field 'tokens' in .*; known are activ"):
        read_fields(path, TextDescription)


def test_tokens_that_are_refused() -> None:
    weights = random_text_weights(GPT2)
    message = "Tokens of model toy must be from 0 to 10, not 11"
    refused(ValueError, message, forward, GPT2, weights, [[3, 11]])
    cache = KvCache()
    forward(GPT2, weights, [[1] * 8], cache)
    message = "Model toy takes at most 9 tokens, not 10"
    refused(ValueError, message, forward, GPT2, weights, [[1, 2]], cache)
