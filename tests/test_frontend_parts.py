"""Importers against definitions: windows of convolutions, layers of the host, pieces of texts."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from celosia.generators.frontend.host_steps import layer_norm, linear, rearrange, window_indices
from celosia.generators.frontend.hugging_face_pair import _positions
from celosia.generators.frontend.onnx.causal import unlike_gpt2
from celosia.generators.frontend.pieces import _byte_level, clean, open_end_length
from celosia.generators.frontend.tokenizer import TextTokenizer

MARKS = [" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"]
"""What is shortened by a space before it; see ``clean_up_tokenization`` of transformers."""


@pytest.mark.parametrize("kernel", [(3,), (2, 3)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_windows_are_those_of_a_convolution(kernel, stride, dilation, padding) -> None:
    """A product with the windows is the sum over kernel and channels, element by element."""
    rng, axes = np.random.default_rng(1), len(kernel)
    sizes, (before, after) = (7, 8)[:axes], padding
    values = rng.integers(-9, 9, (2, *sizes)).astype(float)
    weight = rng.integers(-9, 9, (2, *kernel)).astype(float)
    places = window_indices(
        values.shape,
        kernel,
        (stride,) * axes,
        (before,) * axes if before else (),
        (after,) * axes if after else (),
        (dilation,) * axes if dilation > 1 else (),
    )
    made = rearrange("windows", "", places).function(values)
    counts = [
        (size + before + after - (width - 1) * dilation - 1) // stride + 1
        for size, width in zip(sizes, kernel, strict=True)
    ]
    assert made.shape == (*counts, 2, *kernel)
    for place in product(*map(range, counts)):
        total = 0.0
        for channel, *inside in product(range(2), *map(range, kernel)):
            at = [p * stride + i * dilation - before for p, i in zip(place, inside, strict=True)]
            if all(0 <= a < size for a, size in zip(at, sizes, strict=True)):
                total += values[(channel, *at)] * weight[(channel, *inside)]
        assert np.sum(made[place] * weight) == total


def test_layers_on_the_host() -> None:
    rng = np.random.default_rng(2)
    x, weight, bias = rng.normal(3, 2, (4, 5)), rng.normal(0, 1, (3, 5)), rng.normal(0, 1, 3)
    layer = linear("some", "", weight, bias, rows=4)
    assert np.allclose(
        layer.function(x), [[row @ w + b for w, b in zip(weight, bias, strict=True)] for row in x]
    )
    assert (layer.parameters, layer.products) == (18, 60)
    assert (linear("some", "", weight).parameters, linear("some", "", weight).products) == (15, 15)
    normed = layer_norm("some", np.full(5, 2.0), np.full(5, 0.5), 1e-5).function(x)
    assert np.allclose(normed.mean(axis=1), 0.5)
    assert np.allclose(normed.std(axis=1), 2.0, atol=1e-4)


def test_cleaned_texts_have_no_space_before_marks() -> None:
    for mark in MARKS:
        kept = "'" if mark == " ' " else mark[1:]
        assert clean(f"one{mark}two") == f"one{kept}two"
    assert clean("one two") == "one two"


def test_what_follows_never_changes_what_is_clean() -> None:
    """Of a text that grows, all but its last ``open_end_length`` characters are clean already."""
    words = ["a", " ", "n", "'", "t", "v", "e", ".", ","]
    texts = ["".join(some) for size in range(1, 5) for some in product(words, repeat=size)][::3]
    texts += ["one  ' ", "one ' ", "one ' n", "' n ' t"]
    tails = [mark[begin:] for mark in MARKS for begin in range(len(mark))]
    ends = [*tails, *(f"' {tail}" for tail in tails), *(f" ' {tail}" for tail in tails)]
    for text in texts:
        known = clean(text[: len(text) - open_end_length(text)])
        assert all(clean(text + end).startswith(known) for end in ends)
    texts = "word", "word ", "do n", "do n'", "is '"
    assert [open_end_length(text) for text in texts] == [0, 1, 2, 3, 2]


def test_bytes_of_a_vocabulary_are_printable_characters() -> None:
    """As GPT-2 has it: printable bytes are themselves, the others follow from 256 on."""
    made = _byte_level()
    assert sorted(made.values()) == list(range(256))
    assert {made[chr(byte)] for byte in range(33, 127)} == set(range(33, 127))
    assert (made["\u0100"], made["\u0120"], made["\u010a"]) == (0, 32, 10)
    assert all(char.isprintable() and not char.isspace() for char in made)


def test_bytes_around_a_special_token_are_one_character() -> None:
    """Decoding skips a special token, so bytes before it are not settled by it."""
    words = ["<s>", "</s>", "<other>", "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(dict(zip(words, range(260), strict=True)), []))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(words[:3])
    texts = TextTokenizer(tokenizer, 0, frozenset({1}))
    for skipped in (0, 1, 2, 999):
        for low, high in product((0x39, 0xC3), (0x41, 0xA9)):
            tokens = [3, 4 + low, skipped, 4 + high, 3]
            whole = texts.decode(tokens)
            assert all(whole.startswith(texts.settled(tokens[:n])) for n in range(6))
            assert texts.settled(tokens) == whole


@pytest.mark.parametrize(
    ("changes", "weights", "text"),
    [
        ({}, {}, ""),
        ({"norm": "none"}, {}, "no norms"),
        ({}, {"embedding_norm.weight": 1}, "a norm of the embedding"),
        ({}, {"class_token": 1}, "a class token"),
        ({"embedding": "none", "blocks": [SimpleNamespace(weights={})]}, {},
         "an embedding that is not a table of token vectors, attention without an MLP"),
        ({}, {"head_hidden.weight": 1}, "a hidden layer in its head"),
        ({"classes": 8}, {}, "8 output columns for each token, but a vocabulary of 9 tokens"),
        ({"classes": 0}, {}, "6 output columns for each token, but a vocabulary of 9 tokens"),
        ({"classes": 0, "dim": 9}, {}, "no layer of scores after its last block"),
        ({"pooling": "mean"}, {}, "one output for the whole text (pooling mean)"),
        ({"name": "end", "classes": 0}, {},
         "nodes after value 'end' that are not a layer of scores"),
    ],
)  # fmt: skip
def test_differences_from_gpt2_are_named(changes, weights, text) -> None:
    like = {"embedding": "tokens", "norm": "layernorm", "pooling": "none", "classes": 9, "name": ""}
    like["dim"] = 6
    blocks = [SimpleNamespace(weights={"up.weight": 1})]
    tensors = {"words": np.zeros((9, 6))} | weights
    encoder = SimpleNamespace(**{"weights": tensors, "blocks": blocks, **like, **changes})
    assert unlike_gpt2(encoder) == text


@pytest.mark.parametrize("dim", [4, 5])
def test_places_of_pegasus_are_sines_and_then_cosines(dim: int) -> None:
    model = SimpleNamespace(positions=3, dim=dim)
    made = _positions(SimpleNamespace(tensors={}, kind="pegasus"), "places", model)
    speeds = 10000.0 ** (-2 * (np.arange(dim) // 2) / dim)
    angles = np.outer(np.arange(3), speeds)
    right = np.concatenate([np.sin(angles[:, ::2]), np.cos(angles[:, 1::2])], axis=1)
    np.testing.assert_allclose(made, right, rtol=1e-12)
