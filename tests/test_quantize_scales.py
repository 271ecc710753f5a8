"""Scales of single tensors and weights, the limits that are refused, and seeds."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.operations import Attention, Linear, Norm
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.rebuilt import rebuilt
from celosia.generators.graph.tensors import Rescale
from celosia.generators.quantize.low_rank import correct
from celosia.generators.quantize.mixed import (
    CANDIDATES,
    COARSE,
    INT8,
    UNIFORM,
    Mixture,
    choose_formats,
)
from celosia.generators.quantize.multipliers import check_full_parameters
from celosia.generators.quantize.nested import nest, planes
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_model
from celosia.generators.quantize.score_error import score_errors
from celosia.generators.quantize.stored import quantize_weights
from celosia.generators.quantize.texts import calibration_texts
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from tests.test_quantize_whole import (
    BOTH,
    ENCODER,
    GPT,
    LLAMA,
    SMALL,
    inputs_of,
    weights_of,
)


def quantized(model: TextDescription, floats: Any = None, **options: Any) -> IntegerGraph:
    asked = Quantization(**{"texts": 2, "length": 20, **options})
    weights = floats or weights_of(model)
    samples = calibration_texts(model, weights, 0, asked)
    return quantize_calibrated(model, weights, samples, None, asked)


def factors(rescale: Rescale) -> np.ndarray:
    return rescale.multiplier * 2.0 ** (rescale.shift - 31.0)


def named(graph: IntegerGraph, name: str) -> Any:
    """Return the operation that writes a tensor."""
    return next(op for op in graph.ops if op.target.name == name)


def attentions(graph: IntegerGraph) -> list[Attention]:
    return [op for op in graph.ops if isinstance(op, Attention)]


@pytest.mark.parametrize(
    ("whole", "kept"), [(None, LLAMA.head_dim // 4 * 2), (0, 0), (LLAMA.head_dim, LLAMA.head_dim)]
)
def test_half_of_a_rotated_head_keeps_its_bits(whole: int | None, kept: int) -> None:
    for op in attentions(quantized(LLAMA, kv_bits=4, whole=whole)):
        assert op.full_width_key_columns == kept
    assert all(op.full_width_key_columns == 0 for op in attentions(quantized(LLAMA)))
    assert all(op.full_width_key_columns == 0 for op in attentions(quantized(GPT, kv_bits=4)))


def test_probabilities_of_a_decoder_have_127_steps() -> None:
    for op in attentions(quantized(GPT)):
        for head in op.heads:
            np.testing.assert_allclose(factors(head.probabilities), 127 / 2**24, rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"kv_bits": 4}, {"kv_bits": 4, "block": 16}])
def test_values_have_one_step_unless_columns_are_balanced(options: dict[str, Any]) -> None:
    for balance in (0.0, 0.5):
        for op in attentions(quantized(GPT, balance=balance, **options)):
            assert (len(set(op.value.steps.round(12))) == 1) == (balance == 0)


@pytest.mark.parametrize(
    ("name", "changes", "biases"),
    [
        ("embedding", {}, {"embed.bias": 99.0, "layers.0.output.bias": -60.0}),
        ("layers.0.attention_sum", {}, {"layers.0.output.bias": 99.0, "layers.0.down.bias": -60.0}),
        (
            "layers.1.mlp_norm",
            {"placement": "post", "final_norm": False},
            {"layers.1.mlp_norm.bias": 99.0},
        ),
    ],
)
def test_the_stream_has_twice_the_room_of_its_largest_tensor(
    name: str, changes: dict[str, Any], biases: dict[str, float]
) -> None:
    """Its tensors are the embedding, sums, and norms whose outputs it holds."""
    model = ENCODER.replace(**changes)
    weights, inputs = weights_of(model), inputs_of(model)
    for changed, bias in biases.items():
        weights[changed][2] = bias
    made = quantize_model(model, weights, inputs, SMALL)
    largest = np.abs(forward(model, weights, inputs)[name]).max()
    assert largest > 90
    assert made.stream.scale == pytest.approx(2 * largest / 32767)


def test_an_embedding_before_its_norm_has_no_room_in_the_stream() -> None:
    model = ENCODER.replace(embedding_norm=True)
    weights, inputs = weights_of(model), inputs_of(model)
    weights["embed.bias"][2] = 99.0
    assert np.abs(forward(model, weights, inputs)["embedding"]).max() > 90
    assert quantize_model(model, weights, inputs, SMALL).stream.scale < 20 / 32767


@pytest.mark.parametrize(("low", "high", "scale"), [(-3.0, 1.0, 3 / 128), (-1.0, 3.0, 3 / 127)])
def test_a_range_fits_at_both_ends_without_a_zero_point(
    low: float, high: float, scale: float
) -> None:
    inputs = np.linspace(low, high, ENCODER.tokens * ENCODER.features)
    inputs = inputs.reshape(1, ENCODER.tokens, -1)
    config = SMALL.replace(zero_points=False)
    made = quantize_model(ENCODER, weights_of(ENCODER), inputs, config)
    assert (made.input.scale, made.input.zero) == (pytest.approx(scale), 0)


def test_biases_stay_below_two_to_the_30() -> None:
    weights = weights_of(ENCODER)
    weights["head.weight"][1] = 1e-12
    weights["head.bias"][1] = 5.0
    text_weights = weights_of(GPT)
    text_weights["head.weight"][1] = 1e-12
    text_weights["head.bias"][1] = 5.0
    for op in (
        named(quantize_model(ENCODER, weights, inputs_of(ENCODER), SMALL), "output"),
        named(quantized(GPT, text_weights), "logits"),
    ):
        zero = op.source.zero * op.weight[:, 1].sum()
        assert op.rescale.bias[1] + zero == 1 << 30
        assert op.rescale.bias[1] * factors(op.rescale)[1] * op.target.scale == pytest.approx(5.0)


def test_an_output_without_weights_has_its_bias_in_its_own_steps() -> None:
    weights = weights_of(GPT)
    weights["head.weight"][4] = 0.0
    op = named(quantized(GPT, weights), "logits")
    assert op.rescale.bias[4] == round(float(weights["head.bias"][4]) / op.target.scale)
    assert factors(op.rescale)[4] == 1


@pytest.mark.parametrize("name", ["layers.1.query", "layers.0.down"])
def test_a_bias_beyond_32_bits_is_refused(name: str) -> None:
    weights = weights_of(GPT)
    weights[f"{name}.bias"][3] = 1e9
    sentence = re.escape(f"Layer {name} of model gpt cannot be requantized: its bias is ")
    with pytest.raises(InputError, match=f"^{sentence}\\S+ of its products' steps of "):
        quantized(GPT, weights, weights="int4")


def test_a_model_with_an_end_has_no_places_after_it() -> None:
    message = (
        "Model gpt has at most 48 places, as from there on its layers attend to a window or its "
        "positions are others, not 49"
    )
    model = GPT.replace(bounded=True)
    quantized(model, places=48)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        quantized(model, places=49)


def test_a_norm_whose_gain_is_zero_is_folded() -> None:
    weights = weights_of(LLAMA)
    weights["layers.0.mlp_norm.weight"][3] = 0
    made = quantized(LLAMA, weights, folded=True)
    norm = named(made, "layers.0.mlp_input")
    assert isinstance(norm, Norm)
    assert norm.rescale.multiplier.size == 1
    for name in ("layers.0.gate", "layers.0.up"):
        if any(op.target.name == name for op in made.ops):
            assert not named(made, name).weight[3].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"placement": "post", "final_norm": False},
            "Deferred norms need placement pre and final_norm true, but model llama has placement "
            "post and final_norm false",
        ),
        (
            {"final_norm": False},
            "Deferred norms need placement pre and final_norm true, but model llama has placement "
            "pre and final_norm false",
        ),
        (
            {"head_norms": True},
            "Deferred norms need head_norms false, but model llama normalizes queries and keys of "
            "each head",
        ),
        (
            {"norm": "layernorm"},
            "Deferred norms need norm rmsnorm and source_layers 0, but model llama has norm "
            "layernorm and source_layers 0",
        ),
        (
            {"bias": True},
            "Layer layers.0.query of model llama has biases, which no product behind a deferred "
            "norm can have",
        ),
    ],
)
def test_models_without_deferred_norms(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        quantized(LLAMA.replace(**changes), folded=True, deferred=True)


def test_seeds_decide_the_samples() -> None:
    for model in (GPT, BOTH):
        options = [Quantization(texts=3, length=9, seed=seed) for seed in (1, 1, 2)]
        first, same, other = (
            calibration_texts(model, weights_of(model), None, asked).tokens for asked in options
        )
        np.testing.assert_array_equal(first, same)
        assert np.any(first != other)


def test_low_scores_that_saturate_are_no_errors() -> None:
    made = quantized(GPT)

    def steeper(part: Any) -> Any:
        if not isinstance(part, Attention):
            return None
        return replace(part, scores=replace(part.scores, shift=part.scores.shift + 7))

    changed = rebuilt(made, steeper)
    tokens = np.arange(20)
    tensors = evaluate(changed, tokens)
    seen = np.tri(len(tokens), dtype=bool)
    for op, errors in zip(attentions(changed), score_errors(changed, tensors, tokens), strict=True):
        low = tensors[f"{op.prefix}.scores"][:, seen] == -32768
        assert low.sum() > 10
        assert np.median(errors[low]) == 0


def test_weights_are_integers_of_a_wide_type() -> None:
    rng = np.random.default_rng(1)
    weights, inputs = rng.normal(0, 1, (5, 8)), rng.normal(0, 20, (90, 8))
    nested, _ = nest(weights, inputs)
    assert nested.dtype == np.int64
    assert sum(len(plane.codes) for plane in planes(nested)) == 3 * 8


def test_a_correction_of_few_rows_stays_in_int8() -> None:
    """Of inputs with an outlier, thin products are large and second weights limited."""
    rng = np.random.default_rng(2)
    for scale in (1, 1000):
        inputs = rng.normal(0, 30, (300, 12))
        inputs[0] *= scale
        correction = correct(rng.normal(0, 1, (20, 12)), FORMATS["int2"], 0, inputs, 3, "some")
        for part in (correction.first, correction.second):
            assert part.dtype == np.int64
            assert -127 <= part.min() < 0 < part.max() <= 127
        thin = inputs @ correction.first * correction.factors
        assert np.abs(thin).max() <= 127.5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"multiplier_width": 16}, "multiplier_width 32, which only decoders whose weights stay"),
        ({"pre_depth": 5}, "pre_depth 0, which only decoders whose weights stay"),
    ],
)
def test_fewer_bits_of_parameters_are_refused(changes: dict[str, int], sentence: str) -> None:
    config = SMALL.replace(fused=True)
    check_full_parameters("toy", config)
    (value,) = changes.values()
    message = f"Model toy needs {sentence} on the chip do not need, but it is {value}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        check_full_parameters("toy", config.replace(**changes))


def loss_of(model: IntegerGraph) -> tuple[float, float]:
    """Return a loss of 3 and more: relative errors of matrices, of which some count more."""
    sizes = {op.target.name: op for op in uniform_models()[INT8].ops if isinstance(op, Linear)}
    total = 0.0
    for op in model.ops:
        if isinstance(op, Linear):
            exact = sizes[op.target.name]
            wanted = exact.weight * factors(exact.rescale)
            error = op.weight * factors(op.rescale) - wanted
            rate = 5.0 if op.target.name.endswith(("hidden", "logits")) else 0.2
            total += rate * float(np.sum(error**2) / np.sum(wanted**2))
    return 3.0 + total, 3.0 + 2 * total


@cache
def uniform_models() -> dict[str, IntegerGraph]:
    return {name: quantized(GPT, weights=name) for name in (INT8, *CANDIDATES)}


@pytest.mark.parametrize("bound", [0.0, 0.02, 0.1, 1e9])
def test_a_mixture_is_small_within_its_bound(bound: float) -> None:
    models = uniform_models()
    tokens, told = np.arange(20), list[tuple[int, int]]()
    measured = dict[int, float]()

    def measure(model: IntegerGraph) -> tuple[float, float]:
        loss, error = loss_of(model)
        measured[model.weight_bytes] = min(loss - 3.0, measured.get(model.weight_bytes, np.inf))
        return loss, error

    mixture = choose_formats(
        models.__getitem__,
        measure,
        lambda model: evaluate(model, tokens),
        bound,
        lambda *done: told.append(done),
    )
    names = [op.target.name for op in uniform_models()[INT8].ops if isinstance(op, Linear)]
    assert told == [(done, len(told)) for done in range(1, len(told) + 1)]
    assert len(told) == len(names) + len(CANDIDATES) + 10 + 1
    uniform = models[UNIFORM]
    assert mixture.uniform_bytes == uniform.weight_bytes
    assert mixture.uniform_loss == pytest.approx(loss_of(uniform)[0] - 3.0)
    fitting = [size for size, loss in measured.items() if loss <= bound]
    assert mixture.weight_bytes == min(fitting)
    assert mixture.loss == pytest.approx(measured[mixture.weight_bytes])
    assert mixture.loss <= bound
    if bound == 0.1:
        # Matrices that count less have fewer bits than the others.
        width = {name: FORMATS[form].width for name, form in mixture.chosen.items()}
        heavy = [width.get(name, 8) for name in width if name.endswith("up.weight")]
        light = [width.get(name, 8) for name in width if name.endswith("down.weight")]
        assert max(light, default=8) <= min(heavy, default=8)
    if bound == 0:
        assert mixture.chosen == {}
        assert mixture.summary.startswith(
            f"none of the matrices, {uniform_models()[INT8].weight_bytes:,} bytes, "
        )
    if bound == 1e9:
        assert set(mixture.chosen.values()) == {"ternary"}
    assert COARSE in CANDIDATES


def test_a_mixture_names_the_matrices_of_each_format() -> None:
    mixture = Mixture({"a": "int4", "b": "nf4", "c": "int4"}, 0.0125, 12345, 0.25, 20000)
    assert mixture.summary == (
        "int4 for 2, nf4 for 1 of the matrices, 12,345 bytes, loss 0.0125; int4 for all: 20,000 "
        "bytes, loss 0.25"
    )


def test_weights_may_have_formats_of_their_own() -> None:
    chosen = {"layers.0.query.weight": "int3", "layers.1.down.weight": "nested"}
    made = quantized(LLAMA, chosen=chosen, weights="int4")
    forms = {
        op.target.name: None if op.stored is None else op.stored.form.name
        for op in made.ops
        if isinstance(op, Linear)
    }
    assert forms.pop("layers.0.query_sums") == "int3"
    assert forms.pop("layers.1.mlp_sum") is None
    assert len(named(made, "layers.1.mlp_sum").planes) == 3
    assert set(forms.values()) == {"int4"}
    assert made.input.name == "input"


@pytest.mark.parametrize("name", ["int3", "int4", "ternary", "nf4"])
def test_codes_have_the_step_that_loses_least(name: str) -> None:
    """Without groups the step is searched; a weight becomes the nearest of the code's values."""
    form, rng = FORMATS[name], np.random.default_rng(5)
    weights = rng.standard_t(3, (8, 60))
    stored, operands, steps = quantize_weights(weights, form, 0, None)
    values = np.array(form.values)
    np.testing.assert_array_equal(operands, values[stored.codes])

    def made(step: np.ndarray) -> np.ndarray:
        exact = weights / step[:, None]
        return values[np.abs(exact[..., None] - values).argmin(axis=-1)] * step[:, None]

    def loss(step: np.ndarray) -> np.ndarray:
        return np.sum((made(step) - weights) ** 2, axis=1)

    np.testing.assert_allclose(operands.T * steps[:, None], made(steps))
    widest = np.abs(weights).max(axis=1) / min(values.max(), -values.min())
    tried = np.array([loss(clip * widest) for clip in np.geomspace(1, 0.4, 16)])
    np.testing.assert_allclose(loss(steps), tried.min(axis=0))
    assert np.any(steps < 0.9 * widest)
