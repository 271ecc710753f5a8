"""Whole quantized models against their float models: errors of every tensor, and their report."""

from typing import Any

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.operations import Attention, Linear
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.quantize import parting as module
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting, compare_models
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_model
from celosia.generators.quantize.score_error import score_errors
from celosia.generators.quantize.texts import calibration_texts, random_sources
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.tb.verify.random_models import random_weights

SMALL = PRESETS["small"]
ENCODER = ModelDescription(
    name="toy", tokens=6, features=5, dim=12, layers=2, heads=4, kv_heads=2, ffn=20, classes=4
)
LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=3, ffn=44
)
GPT = TextDescription(
    **{"name": "gpt", "vocabulary": 30, "positions": 48, "dim": 32, "layers": 2, "heads": 2},
    **{"ffn": 40, "norm": "layernorm", "position": "learned", "gated": False, "bias": True},
    **{"activation": "gelu_tanh", "head_bias": True, "tied": False},
)
BOTH = GPT.replace(name="both", source_layers=1, source_positions=9, start=1)


def weights_of(model: Any) -> Weights:
    """Return weights with which activations neither grow nor vanish."""
    return random_weights(np.random.default_rng(1), model)


def inputs_of(model: ModelDescription) -> np.ndarray:
    return np.random.default_rng(2).normal(0, 1, (8, model.tokens, model.features))


def encoder(
    model: ModelDescription, config: Config = SMALL, **options: Any
) -> tuple[IntegerGraph, Parting]:
    """Return a quantized encoder, and its errors on the inputs of its calibration."""
    weights, inputs = weights_of(model), list(inputs_of(model))
    if model.variable:
        inputs = [rows[: 2 + place % 5] for place, rows in enumerate(inputs)]
    made = quantize_model(model, weights, inputs, config, Quantization(**options))
    return made, compare_models(made, weights, inputs)


def decoder(model: TextDescription, **options: Any) -> tuple[IntegerGraph, Parting]:
    """Return a quantized decoder, and its errors on the texts of its calibration."""
    weights = weights_of(model)
    asked = Quantization(**{"texts": 2, "length": 20, **options})
    samples = calibration_texts(model, weights, 0, asked)
    made = quantize_calibrated(model, weights, samples, None, asked)
    sources = random_sources(model, asked.texts, asked.seed) if model.source_layers else []
    assert samples.sources == tuple(map(len, sources))
    return made, compare_models(made, weights, list(samples.tokens), sources)


def compared(apart: Parting, first: float, most: float) -> None:
    """Compare the errors of a model's first layer with a bound, and all others with another."""
    for name, error in apart.errors.items():
        bound = first if name.startswith(("layers.0.", "embedding")) else most
        assert error <= bound, f"{name} is {error:.1%} off"
    assert 0 < apart.output_error <= most
    assert apart.errors[apart.tensor] == apart.error


@pytest.mark.parametrize(
    ("changes", "config", "options"),
    [
        ({}, {}, {}),
        ({}, {}, {"balance": 0.0}),
        ({}, {}, {"balance": 1.0}),
        ({}, {}, {"per_channel": False}),
        ({}, {}, {"activations": "mixed"}),
        ({"activation": "gelu"}, {}, {"wide_functions": True}),
        ({}, {"zero_points": False}, {}),
        ({"activation": "relu"}, {}, {}),
        ({"shaped": True}, {}, {}),
        ({"class_token": True}, {}, {}),
        ({"norm": "none", "final_norm": False, "bias": False}, {}, {}),
        ({"norm": "rmsnorm", "placement": "post", "final_norm": False}, {}, {}),
        ({"kv_heads": 4, "values": False, "output": False}, {}, {"balance": 1.0}),
        ({"variable": True}, {}, {}),
        ({}, {}, {"weights": "nested"}),
        ({}, {}, {"weights": "int4", "low_rank": 3}),
        ({"unit": True, "classes": 0}, {}, {}),
    ],
)
def test_encoders_are_near_their_floats(
    changes: dict[str, Any], config: dict[str, Any], options: dict[str, Any]
) -> None:
    made, apart = encoder(ENCODER.replace(**changes), SMALL.replace(**config), **options)
    coarse = 3 if "weights" in options else 1
    compared(apart, coarse * 0.025, coarse * 0.035)
    assert apart.warning == ""
    assert made.output.name == made.ops[-1].target.name
    assert made.description.classes == 0 or apart.agreement == 1


@pytest.mark.parametrize(
    ("model", "options", "first", "most"),
    [
        (LLAMA, {}, 0.05, 0.065),
        (LLAMA, {"balance": 0.0}, 0.06, 0.08),
        (LLAMA, {"activations": "mixed"}, 0.045, 0.06),
        (LLAMA, {"wide_functions": True}, 0.05, 0.065),
        (LLAMA, {"folded": True}, 0.05, 0.065),
        (LLAMA, {"folded": True, "deferred": True}, 0.06, 0.07),
        (LLAMA, {"alike": False}, 0.05, 0.065),
        (LLAMA.replace(head_norms=True), {}, 0.05, 0.09),
        (LLAMA.replace(rotary_speeds=True), {}, 0.05, 0.07),
        (GPT, {}, 0.03, 0.04),
        (GPT, {"alike": False}, 0.03, 0.04),
        (GPT, {"activations": "mixed"}, 0.03, 0.04),
        (GPT.replace(placement="post", final_norm=False), {}, 0.03, 0.04),
        (BOTH, {}, 0.03, 0.04),
        (LLAMA, {"kv_bits": 4}, 0.14, 0.19),
        (LLAMA, {"kv_bits": 4, "whole": 0}, 0.17, 0.27),
        (LLAMA, {"kv_bits": 4, "block": 4}, 0.15, 0.19),
        (GPT, {"kv_bits": 4}, 0.09, 0.1),
        (GPT, {"kv_bits": 4, "block": 16}, 0.12, 0.13),
        (LLAMA, {"weights": "int4"}, 0.19, 0.24),
        (LLAMA, {"weights": "int4", "group": 8}, 0.13, 0.18),
        (LLAMA, {"weights": "int4", "low_rank": 4}, 0.13, 0.17),
        (LLAMA, {"weights": "nested"}, 0.12, 0.16),
        (GPT, {"weights": "nested"}, 0.07, 0.09),
    ],
)
def test_decoders_are_near_their_floats(
    model: TextDescription, options: dict[str, Any], first: float, most: float
) -> None:
    _, apart = decoder(model, **options)
    compared(apart, first, most)


@pytest.mark.parametrize(
    ("model", "options", "mean", "most"),
    [
        (LLAMA, {}, 6, 200),
        (LLAMA, {"activations": "mixed"}, 4, 120),
        (LLAMA, {"weights": "int4", "low_rank": 4}, 8, 200),
        (LLAMA.replace(head_norms=True), {}, 5, 80),
        (GPT, {}, 6, 40),
        (GPT, {"activations": "mixed"}, 3, 15),
    ],
)
def test_scores_of_decoders_are_near_exact_ones(
    model: TextDescription, options: dict[str, Any], mean: float, most: float
) -> None:
    """In units of 2**-8 octaves, of scores that reach thousands."""
    _, apart = decoder(model, **options)
    assert apart.score_error is not None
    assert apart.largest_score_error is not None
    assert 0 < apart.score_error < mean
    assert apart.score_error < apart.largest_score_error < most


@pytest.mark.parametrize("activations", ["int8", "mixed"])
def test_scores_of_encoders_are_near_exact_ones(activations: str) -> None:
    """An error of a score is counted once, for each pair of rows that attend to each other."""
    model = ENCODER.replace(class_token=True, variable=True)
    weights, inputs = weights_of(model), inputs_of(model)
    made = quantize_model(model, weights, inputs, SMALL, Quantization(activations=activations))
    tensors = evaluate(made, inputs[0, :4])
    errors = list(score_errors(made, tensors, inputs[0, :4]))
    assert [found.shape for found in errors] == [(4, 25), (4, 25)]
    assert all(found.max() < (2 if activations == "mixed" else 40) for found in errors)
    name = "layers.1.scores"
    changed = tensors | {name: tensors[name] + 1000 * np.eye(len(tensors[name][0]), dtype=int)}
    moved = list(score_errors(made, changed, inputs[0, :4]))
    np.testing.assert_array_equal(moved[0], errors[0])
    far = np.isclose(moved[1], 1000, atol=41)
    assert far.sum() == 4 * 5
    np.testing.assert_array_equal(moved[1][~far], errors[1][~far])


def test_scores_in_a_window_count_alone() -> None:
    model = ENCODER.replace(window=1, global_tokens=1)
    weights, inputs = weights_of(model), inputs_of(model)
    made = quantize_model(model, weights, inputs, SMALL)
    (first, _) = score_errors(made, evaluate(made, inputs[0]), inputs[0])
    # Two or three neighbours of each of six rows, and the first row with all others.
    neighbours = 3 * 6 - 2
    assert first.shape == (4, neighbours + 2 * 4)
    assert first.max() < 40


def test_keys_of_fewer_bits_and_deferred_norms_have_no_exact_scores() -> None:
    for options in ({"kv_bits": 4}, {"folded": True, "deferred": True}):
        _, apart = decoder(LLAMA, **options)
        assert apart.score_error is apart.largest_score_error is None


def test_the_report_is_of_outputs_in_real_numbers() -> None:
    weights, inputs = weights_of(ENCODER), inputs_of(ENCODER)
    made, apart = encoder(ENCODER)
    exact = np.stack([forward(ENCODER, weights, x[None])["output"][0, 0] for x in inputs])
    found = np.stack([evaluate(made, x)["output"][0] * made.output.steps for x in inputs])
    cosine = (
        np.sum(exact * found, 1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
    )
    assert apart.inputs == 8
    assert apart.cosine == pytest.approx(cosine.mean())
    assert apart.square_error == pytest.approx(np.mean((exact - found) ** 2))
    assert apart.output_error == pytest.approx(
        np.linalg.norm(exact - found) / np.linalg.norm(exact)
    )
    assert apart.agreement == np.mean(exact.argmax(1) == found.argmax(1))
    assert apart.balanced
    figures = apart.figures()
    assert figures["square_error"] == apart.square_error
    assert figures["tensor"] == apart.tensor
    assert figures["warning"] is None
    assert list(figures) == [
        *("inputs", "cosine", "square_error", "agreement", "tensor", "error", "score_error"),
        *("largest_score_error", "warning"),
    ]


def test_a_report_names_the_tensor_that_parts_from_exact_inputs() -> None:
    """Weights of one layer that are wrong, and columns whose ranges differ most before it."""
    weights, inputs = weights_of(ENCODER), inputs_of(ENCODER)
    made = quantize_model(ENCODER, weights, inputs, SMALL)
    for name in ("layers.0.value", "layers.1.query", "layers.1.up", "head"):
        changed = weights | {f"{name}.weight": -weights[f"{name}.weight"]}
        apart = compare_models(made, changed, list(inputs))
        tensor = {"layers.1.up": "layers.1.hidden", "head": "output"}.get(name, name)
        assert apart.tensor == tensor
        assert apart.error > 0.5
        if name != "layers.1.query":
            assert apart.warning.startswith("integers part from floats on 8 calibration inputs: ")
            assert f"most at {tensor}, which is {apart.error:.1%} off" in apart.warning
    columns = np.abs(
        np.concatenate(
            [forward(ENCODER, weights, x[None])["layers.1.attention_input"] for x in inputs]
        )
    ).max(axis=(0, 1))
    wrong = weights | {"layers.1.key.weight": -weights["layers.1.key.weight"]}
    apart = compare_models(made, wrong, list(inputs))
    found = {"layers.1.key", "layers.1.attention_input"}
    assert apart.spread_tensor in found
    if apart.spread_tensor == "layers.1.attention_input":
        assert apart.spread == pytest.approx(columns.max() / columns.min())
    apart = encoder(ENCODER.replace(classes=0))[1]
    assert apart.agreement is None
    assert decoder(GPT)[1].balanced is False


@pytest.mark.parametrize("class_token", [True, False])
def test_rows_that_are_loaded_and_rows_without_their_factor_are_not_errors(
    class_token: bool,
) -> None:
    if class_token:
        _, apart = encoder(ENCODER.replace(class_token=True))
        assert apart.errors["embedding"] < 0.02
    else:
        made, apart = decoder(LLAMA, folded=True, deferred=True)
        assert all(op.deferred for op in made.ops if isinstance(op, Attention))
        assert "layers.0.attention_input" not in apart.errors
    assert apart.error < 0.06


@pytest.mark.parametrize("part", ["query", "key"])
def test_an_attention_is_not_blamed_for_its_queries_and_keys(part: str) -> None:
    """A large column, which scores lack, hides the error of queries but not that of contexts."""
    model = ENCODER.replace(kv_heads=4)
    weights, inputs = weights_of(model), inputs_of(model)
    other = {"query": "key", "key": "query"}[part]
    unused = np.arange(0, model.dim, model.head_dim)
    for layer in range(model.layers):
        for kind in ("weight", "bias"):
            weights[f"layers.{layer}.{other}.{kind}"][unused] = 0
    weights[f"layers.1.{part}.bias"][unused] = 16.0
    made = quantize_model(model, weights, inputs, SMALL, Quantization(activations="mixed"))
    changed = weights[f"layers.1.{part}.weight"].copy()
    used = np.setdiff1d(np.arange(model.dim), unused)
    changed[used] *= -3
    apart = compare_models(made, weights | {f"layers.1.{part}.weight": changed}, list(inputs))
    errors = apart.errors
    assert errors["layers.1.context"] > errors[f"layers.1.{part}"] > 0.1
    assert apart.tensor == f"layers.1.{part}"


def test_an_attention_is_not_blamed_for_its_values() -> None:
    """Columns with a mean hide the error of values less than their difference from the mean."""
    weights, inputs = weights_of(ENCODER), inputs_of(ENCODER)
    made = quantize_model(ENCODER, weights, inputs, SMALL)
    name = "layers.1.value.bias"
    changed = weights | {name: weights[name] + 0.5}
    apart = compare_models(made, changed, list(inputs))
    assert apart.errors["layers.1.context"] > apart.errors["layers.1.value"] > 0.2
    assert apart.tensor == "layers.1.value"


def test_large_models_are_compared_on_few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, inputs = weights_of(ENCODER), inputs_of(ENCODER)
    made = quantize_model(ENCODER, weights, inputs, SMALL)
    sizes = sum(op.weight.size for op in made.ops if isinstance(op, Linear)) * ENCODER.tokens
    for fewest, rows, products, wanted in (
        (4, 1, 1, 4),
        (1, 6, 1, 6),
        (1, 1, 5 * sizes, 5),
        (1, 1, 5 * sizes + 1, 6),
        (1, 99, 1, 8),
    ):
        monkeypatch.setattr(module, "FEWEST", fewest)
        monkeypatch.setattr(module, "ENOUGH_ROWS", rows)
        monkeypatch.setattr(module, "ENOUGH_PRODUCTS", products)
        assert compare_models(made, weights, list(inputs)).inputs == wanted
