"""Decoders whose norms are behind their parts, with and without a norm before their head."""

import re
from dataclasses import replace

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
from tests.support.decoders import CONFIGS, GPT, LLAMA, tokens_of

POST = {
    "gpt": replace(GPT, placement="post", final_norm=False),
    "gpt_final": replace(GPT, placement="post"),
    "llama": replace(LLAMA, placement="post", final_norm=False),
    "bare_head": replace(GPT, final_norm=False),
}
OPTIONS = Quantization(texts=2, length=24)


def quantized(name):
    """Return a model's decoder in integers, and its weights."""
    model, places = POST[name], 80 if name == "llama" else 0
    weights = random_weights(model)
    return quantize_decoder(model, weights, 0, replace(OPTIONS, places=places)), weights


@pytest.mark.parametrize(
    ("name", "config"),
    [("gpt", config) for config in CONFIGS]
    + [(model, "fused") for model in POST if model != "gpt"]
    + [("llama", "passing")],
)
def test_every_token_is_as_in_the_integer_and_near_the_float_reference(name, config) -> None:
    decoder, weights = quantized(name)
    session = TextSession(compile_text(decoder, CONFIGS[config], context=24), "golden")
    tokens = tokens_of(decoder, 24)
    session.begin()
    first = session.take(tokens[:17])
    turns = [first, *(session.step(token) for token in tokens[17:])]
    assert sum(turn.mismatches for turn in turns) == 0
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    exact = forward(decoder.description, weights, np.array([tokens]))["logits"][0, -1]
    logits = session.logits() * decoder.output.scale
    assert np.corrcoef(logits, exact)[0, 1] > 0.97


def test_two_texts_at_once() -> None:
    decoder, _ = quantized("gpt")
    compile_text(decoder, CONFIGS["fused"], context=12, texts=2)


def test_a_model_without_a_source_alone_is_so() -> None:
    message = (
        "Model fields placement and final_norm must be pre and true where source_layers is 1, not "
        "post and true"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        replace(GPT, placement="post", source_layers=1, source_positions=8)


def test_deferred_norms_are_of_inputs() -> None:
    model = replace(LLAMA, placement="post")
    message = (
        "Deferred norms need placement pre and final_norm true, but model llama has placement post "
        "and final_norm true"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        quantize_decoder(
            model, random_weights(model), 0, replace(OPTIONS, folded=True, deferred=True)
        )
