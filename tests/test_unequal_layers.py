"""Decoders whose layers differ: some rotate queries and keys, and some have no positions."""

import re

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_shapes import random_weights
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.text_session import TextSession
from celosia.tb.models.texts_session import TextsSession
from tests.support.decoders import CONFIGS, LLAMA, PAIRS, tokens_of
from tests.support.longer import longer

UNEQUAL = LLAMA.replace(layers=4, rotated="110")
NORMED = LLAMA.replace(head_norms=True)
MIXED = LLAMA.replace(layers=3, rotated="10", head_norms=True)
ROOMY = {name: CONFIGS[name].replace(table_slots=8, param_depth=1024) for name in CONFIGS}


def quantized(model, **options):
    """Return a model's decoder in integers, and its weights."""
    weights = random_weights(model)
    options = Quantization(texts=2, length=24, places=40, **options)
    return quantize_decoder(model, weights, 0, options), weights


@pytest.mark.parametrize(
    ("model", "config", "options"),
    [
        (UNEQUAL, ROOMY["fused"], {}),
        (UNEQUAL, CONFIGS["passing"], {}),
        (MIXED, ROOMY["streamed"], {}),
        (NORMED, ROOMY["odd"], {"folded": True}),
        (NORMED, PAIRS, {"kv_bits": 4}),
        *longer(
            (UNEQUAL, ROOMY["streamed"], {}),
            (NORMED, ROOMY["fused"], {}),
            (MIXED, CONFIGS["passing"], {}),
        ),
    ],
)
def test_every_token_is_as_in_the_integer_and_near_the_float_reference(
    model, config, options
) -> None:
    decoder, weights = quantized(model, **options)
    session = TextSession(compile_text(decoder, config, context=16), "golden")
    tokens = tokens_of(decoder, 16)
    session.begin()
    turns = [session.take(tokens[:11]), *(session.step(token) for token in tokens[11:])]
    assert sum(turn.mismatches for turn in turns) == 0
    logits = evaluate(decoder, tokens)["logits"]
    assert np.array_equal(session.logits(), logits[-1])
    exact = forward(decoder.description, weights, np.array([tokens]))["logits"][0]
    assert np.corrcoef(logits.ravel(), exact.ravel())[0, 1] > (0.9 if options else 0.96)


def test_setup_in_parts_loads_what_setup_at_once_does() -> None:
    """The matrix of the norms' conversion is the first load, and not the first in the image."""
    decoder, _ = quantized(NORMED)
    program = compile_text(decoder, ROOMY["fused"], context=8, memory_bytes=1024)
    assert len(program.setup) > 9
    session, tokens = TextSession(program, "golden"), tokens_of(decoder, 4)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


@pytest.mark.parametrize("model", [UNEQUAL, NORMED])
def test_two_texts_at_once(model) -> None:
    decoder, _ = quantized(model)
    session = TextsSession(compile_text(decoder, ROOMY["fused"], context=12, texts=2), "golden")
    texts = [tokens_of(decoder, 5, seed) for seed in (2, 3)]
    scores: list[np.ndarray] = []
    for column in zip(*texts, strict=True):
        session.advance(column, lambda _: scores.append(session.logits()))
    for text, logits in zip(texts, scores[-2:], strict=True):
        assert np.array_equal(logits, evaluate(decoder, text)["logits"][-1])


@pytest.mark.parametrize("config", [ROOMY["fused"], CONFIGS["passing"]])
def test_layers_with_and_without_positions_are_iterations_of_one_loop(config) -> None:
    equal, unequal, deeper = (
        len(compile_text(quantized(model)[0], config, context=16).words)
        for model in (
            LLAMA.replace(layers=4),
            LLAMA.replace(layers=4, rotated="1110"),
            LLAMA.replace(layers=8, rotated="1110"),
        )
    )
    assert equal < unequal <= 1.3 * equal
    assert deeper - unequal < 0.2 * equal


def test_patterns_that_are_refused() -> None:
    for rotated in ("", "0", "000", "12", "11111"):
        message = (
            f"Model field rotated must be digits 0 and 1 with a 1, at most 4 for the layers, not "
            f"{rotated!r}"
        )
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            UNEQUAL.replace(rotated=rotated)
    message = "Model field rotated must be 1 where position is learned, not '10'"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        UNEQUAL.replace(position="learned", rotated="10")
    message = (
        "Keys and values that are made anew need rotations in every layer or none, but model llama "
        "has them in the layers 110"
    )
    decoder, _ = quantized(UNEQUAL)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compile_text(decoder, ROOMY["fused"], context=12, recompute=True)
