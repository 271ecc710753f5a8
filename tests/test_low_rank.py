"""Low-rank corrections of coarse weights: their gain, and the products that add them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.formats import FORMATS
from celosia.generators.frontend.text_shapes import random_weights, untrained
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.low_rank import correct
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder
from celosia.generators.quantize.stored import quantize_weights
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.run_inputs import cosine
from celosia.tb.models.text_session import TextSession
from tests.support.text_cases import LLAMA, PAIRED, RESIDENT, TEXT

RANK = 5
TOKENS = [1, 7, 30, 12, 5, 36, 2]


def test_a_correction_makes_up_for_what_codes_lose() -> None:
    """The integers' products against float64: weights that are coarse codes and a low rank."""
    rng = np.random.default_rng(1)
    inputs = np.rint(rng.normal(0, 40, (400, 32)) @ rng.normal(0, 0.25, (32, 32)))
    codes = rng.integers(-2, 2, (48, 32)) * 0.1
    weights = codes + rng.normal(0, 0.1, (48, RANK)) @ rng.normal(0, 1, (RANK, 32))
    wanted = inputs @ weights.T

    def lost(products) -> float:
        return float(np.sum((products - wanted) ** 2) / np.sum(wanted**2))

    _, plain, steps = quantize_weights(weights, FORMATS["int2"], 0, inputs)
    correction = correct(weights, FORMATS["int2"], 0, inputs, RANK, "some")
    thin = np.clip(np.rint(inputs @ correction.first * correction.factors), -128, 127)
    assert np.abs(correction.first).max() <= 127
    assert np.abs(correction.second).max() <= 127
    corrected = lost((inputs @ correction.weight + thin @ correction.second) * correction.steps)
    assert corrected < 0.4 * lost(inputs @ plain * steps)


def test_an_output_without_weights_has_no_correction() -> None:
    model = replace(LLAMA, tied=False)
    weights, empty = random_weights(model), [3, 20]
    for name in ("layers.0.up.weight", "head.weight"):
        weights[name][empty] = 0.0
    options = Quantization(texts=2, length=24, weights="int4", low_rank=RANK)
    decoder = quantize_decoder(model, weights, 0, options)
    for op in (decoder.named["layers.0.up"], decoder.named["logits"]):
        assert not op.weight[:, empty].any()
        assert not op.low_rank.weight[:, empty].any()
    assert not evaluate(decoder, TOKENS)["logits"][:, empty].any()


@pytest.mark.parametrize(("weights", "rank"), [("int2", 0), ("int4", RANK), ("nested", 0)])
def test_an_output_without_weights_is_its_bias(weights: str, rank: int) -> None:
    model, biases = replace(LLAMA, tied=False, bias=True), [0.3, -0.21]
    named, empty = random_weights(model), [3, 20]
    named["layers.0.up.weight"][empty], named["layers.0.up.bias"][empty] = 0.0, biases
    options = Quantization(texts=2, length=24, weights=weights, low_rank=rank)
    decoder = quantize_decoder(model, named, 0, options)
    up = decoder.named["layers.0.up"].target
    values = (evaluate(decoder, TOKENS)[up.name] - up.zero) * up.steps
    assert (np.abs(values[:, empty] - biases) < 0.51 * up.steps[empty]).all()


@pytest.mark.parametrize("live", [0, 4])
def test_inputs_that_are_always_zero_have_a_correction(live: int) -> None:
    """Some thin columns of the product after them are 0 but for a residue of rounding."""
    model = replace(LLAMA, tied=False)
    weights = random_weights(model)
    weights["layers.0.up.weight"][live:] = 0.0
    options = Quantization(texts=2, length=24, weights="int4", group=16, low_rank=RANK)
    decoder = quantize_decoder(model, weights, 0, options)
    logits = evaluate(decoder, TOKENS)["logits"] * decoder.output.scale
    exact = forward(model, weights, np.array([TOKENS]), KvCache())["logits"][0]
    assert cosine(logits, exact) > 0.9


@pytest.mark.parametrize(
    ("weights", "group", "changes", "machine"),
    [
        ("int3", 16, {}, "golden"),
        ("int4", 0, RESIDENT | {"acc_depth": 72}, "golden"),
        ("int4", 16, PAIRED, "golden"),
        ("ternary", 0, {}, "verilator"),
    ],
)
def test_decoders_with_corrections(weights, group, changes, machine) -> None:
    """With few accumulators, sums of an MLP are where those of attention were."""
    options = Quantization(texts=2, length=24, weights=weights, group=group, low_rank=RANK)
    decoder = untrained(LLAMA, options)
    program = compile_text(decoder, TEXT.replace(**changes), context=40)
    session = TextSession(program, machine)
    session.take(TOKENS[:4])
    for token in TOKENS[4:]:
        assert session.step(token).mismatches == 0
    assert np.array_equal(session.logits(), evaluate(decoder, TOKENS)["logits"][-1])
    linears = [op for op in decoder.ops if getattr(op, "low_rank", None)]
    assert len(linears) == 7 * LLAMA.layers + 1
    thin = sum(RANK * sum(op.weight.shape) for op in linears)
    whole = untrained(LLAMA, Quantization(texts=2, length=24, weights=weights, group=group))
    assert decoder.weight_bytes - whole.weight_bytes == thin


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low_rank": -1}, "Rank of a correction must not be negative, not -1"),
        (
            {"weights": "int8"},
            "Rank of a correction is 5, which needs weights of fewer bits, but they are in int8",
        ),
        (
            {"low_rank": 12},
            "Rank of a correction must be less than the 12 of layer layers.0.key, not 12",
        ),
    ],
)
def test_corrections_that_are_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        untrained(
            LLAMA,
            Quantization(
                **({"texts": 2, "length": 24, "weights": "int4", "low_rank": 5} | changes)
            ),
        )


def test_command_refuses_a_rank_without_codes(celosia) -> None:
    code, output, errors = celosia("run", "tales", "--sim", "golden", "--quantize", "low-rank=4")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "needs weights of fewer bits, but they are in int8" in errors
