"""Quantization: scales, zero points and multipliers against the float numbers they stand for."""

import re

import numpy as np
import pytest

from celosia.arch.functions import gelu_erf, relu
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.graph.builder import network
from celosia.generators.graph.operations import Attention, Linear, Norm
from celosia.generators.graph.tensors import Rescale, quantize
from celosia.generators.quantize.balance import column_gains, useful_range
from celosia.generators.quantize.calibrate import Range, calibrate
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import compare_models
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.reference.floats import forward

SMALL = PRESETS["small"]
MODEL = ModelDescription(
    name="toy", tokens=5, features=3, dim=12, layers=2, heads=3, ffn=10, classes=4
)


def toy(model: ModelDescription = MODEL, seed: int = 0):
    rng = np.random.default_rng(seed)
    weights = {name: rng.normal(0, 0.4, shape) for name, shape in model.shapes().items()}
    return weights, rng.normal(0, 1, (8, model.tokens, model.features))


def factors(rescale: Rescale) -> np.ndarray:
    return rescale.multiplier * 2.0 ** (rescale.shift - 31)


def linears(quantized) -> dict[str, Linear]:
    ops = [*quantized.before, *(op for layer in quantized.layers for op in layer)]
    return {op.target.name: op for op in [*ops, *quantized.after] if isinstance(op, Linear)}


def test_linear_layers_stand_for_their_weights() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL, Quantization(balance=0.0))
    op = linears(quantized)["layers.1.query"]
    matrix, bias = weights["layers.1.query.weight"], weights["layers.1.query.bias"]
    steps = np.abs(matrix).max(axis=1) / 127
    np.testing.assert_array_equal(np.abs(op.weight).max(axis=0), 127)
    assert np.abs(op.weight.T * steps[:, None] - matrix).max() <= steps.max() / 2
    np.testing.assert_allclose(factors(op.rescale), op.source.scale * steps / op.target.scale)
    np.testing.assert_allclose(op.rescale.bias * op.source.scale * steps, bias, atol=1e-4)


def test_ranges_cover_what_calibration_saw() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL)
    tensors = forward(MODEL, weights, inputs)
    for layer in quantized.layers:
        for op in layer:
            target, values = op.target, tensors[op.target.name]
            half = 1 << (target.width - 1)
            low, high = ((v - target.zero) * target.steps for v in (-half, half - 1))
            assert np.all(low - target.steps <= values)
            assert np.all(values <= high + target.steps)


@pytest.mark.parametrize("zero_points", [True, False])
def test_zero_points_only_where_the_configuration_has_them(zero_points) -> None:
    weights, inputs = toy()
    config = SMALL.replace(zero_points=zero_points)
    quantized = quantize_model(MODEL, weights, np.abs(inputs), config)
    hidden = [op.source for name, op in linears(quantized).items() if name.endswith("mlp_sum")]
    attention = next(op for op in quantized.layers[0] if isinstance(op, Attention))
    assert (quantized.input.zero == -128) == zero_points
    assert (attention.probability_zero == -128) == zero_points
    assert {tensor.zero for tensor in hidden} == {hidden[0].zero}
    assert (hidden[0].zero != 0) == zero_points


def test_the_hidden_layer_uses_its_whole_range() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL)
    tensors, used = forward(MODEL, weights, inputs), []
    for name, op in linears(quantized).items():
        if name.endswith("hidden"):
            values = tensors[name] / op.target.scale
            used.append(np.ptp(values))
    # One layer's range fills all 255 steps, the other shares its zero point.
    assert 253 <= max(used) <= 255


def test_scores_count_octaves_and_probabilities_steps() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL)
    op = next(op for op in quantized.layers[0] if isinstance(op, Attention))
    octave = op.query.scale * op.key.scale * np.log2(np.e) * 256 / 2
    np.testing.assert_allclose(factors(op.scores), octave, rtol=1e-8)
    np.testing.assert_allclose(factors(op.heads[0].probabilities), 2.0**-16)
    context = op.value.scale / 256 / op.target.scale
    np.testing.assert_allclose(factors(op.heads[0].context), context, rtol=1e-8)


def test_shaped_attention_keeps_its_three_terms() -> None:
    model = MODEL.replace(shaped=True)
    weights, inputs = toy(model)
    for name, values in (("alpha", 1.2), ("beta", -0.8), ("gamma", 0.9)):
        weights[f"layers.0.{name}"] = np.full(3, values)
    quantized = quantize_model(model, weights, inputs, SMALL)
    op = next(op for op in quantized.layers[0] if isinstance(op, Attention))
    head = op.heads[0]
    assert head.diagonal == round(-1.5 * 2**24)
    assert head.probabilities.bias[0] == round(0.9 / 5 / 0.8 * 2**24)
    assert head.probabilities.multiplier[0] < 0
    weights["layers.0.beta"] = np.full(3, 0.1)
    message = (
        "Shaped attention of head 0 in layers.0 of model toy needs alpha and gamma less than 8 "
        "times beta; alpha is 1.2, beta is 0.1 and gamma is 0.9"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        quantize_model(model, weights, inputs, SMALL)


def test_activation_tables_follow_their_function() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL, Quantization(balance=0.0))
    op = linears(quantized)["layers.0.hidden"]
    # The scale of the table's inputs is in the multipliers, their zero point in the biases.
    steps = op.source.scale * np.abs(weights["layers.0.up.weight"]).max(axis=1) / 127
    scales = steps / factors(op.rescale)
    zeros = (op.rescale.bias * steps - weights["layers.0.up.bias"]) / scales
    np.testing.assert_allclose(scales, scales[0])
    np.testing.assert_allclose(zeros, zeros[0].round(), atol=1e-2)
    x = (np.arange(-128, 128) - zeros[0].round()) * scales[0]
    exact = gelu_erf(x) / op.target.scale
    assert np.abs(op.table - np.clip(exact + op.target.zero, -128, 127)).max() <= 0.5
    up = forward(MODEL, weights, inputs)["layers.0.up"]
    assert x[-1] > up.max() - scales[0]
    assert x[0] >= up.min() - scales[0]
    outside = np.linspace(up.min(), x[0], 100)
    assert np.abs(gelu_erf(outside) - gelu_erf(x[0])).max() < 0.3 * op.target.scale


def test_tables_tell_apart_what_differs() -> None:
    bounds = useful_range(relu, Range(-20.0, 20.0), 2.0)
    np.testing.assert_allclose((bounds.low, bounds.high), (0.5, 19.5), atol=0.02)
    bounds = useful_range(np.tanh, Range(-9.0, 9.0), 0.01)
    np.testing.assert_allclose((bounds.low, bounds.high), (-3.34, 3.34), atol=0.02)
    assert useful_range(np.zeros_like, Range(-3.0, 3.0), 1.0) == Range(-3.0, 3.0)


def test_columns_fill_their_ranges() -> None:
    largest = np.array([4.0, 1.0, 0.25, 0.0])
    np.testing.assert_allclose(column_gains(largest, 0.0), 1.0)
    np.testing.assert_allclose(column_gains(largest, 1.0), [1, 0.25, 0.0625, 0.25])
    np.testing.assert_allclose(column_gains(largest, 0.5), [1, 0.5, 0.25, 0.5])
    np.testing.assert_allclose(column_gains(np.zeros(3), 0.5), 1.0)


def test_columns_of_a_larger_step_have_smaller_weights() -> None:
    weights, inputs = toy()
    for name in ("weight", "bias"):
        weights[f"layers.0.attention_norm.{name}"][3] *= 20
    queries = {}
    for balance in (0.0, 1.0):
        quantized = quantize_model(MODEL, weights, inputs, SMALL, Quantization(balance=balance))
        op = linears(quantized)["layers.0.query"]
        queries[balance] = op
        matrix = factors(op.rescale)[:, None] * op.weight.T * op.target.scale / op.source.steps
        assert np.abs(matrix - weights["layers.0.query.weight"])[:, 3].max() < 0.1
    assert queries[0.0].source.gains is None
    gains = queries[1.0].source.gains
    assert gains.argmax() == 3
    columns = np.abs(forward(MODEL, weights, inputs)["layers.0.attention_input"]).max(axis=(0, 1))
    np.testing.assert_allclose(queries[1.0].source.steps * 127, columns)


@pytest.mark.parametrize("balance", [-0.1, 1.1])
def test_balance_out_of_range(balance) -> None:
    message = f"Balance of columns must be from 0 to 1, not {balance}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Quantization(balance=balance)


def test_norms_count_epsilon_in_steps_of_the_stream() -> None:
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL)
    op = next(op for op in quantized.layers[0] if isinstance(op, Norm))
    assert op.eps == round(12 * 12 * 1e-5 / quantized.stream.scale**2)
    assert not op.rms


def test_channels_of_zeros_keep_their_bias() -> None:
    weights, inputs = toy()
    weights["head.weight"][2] = 0
    weights["head.bias"][2] = 0.75
    op = linears(quantize_model(MODEL, weights, inputs, SMALL))["output"]
    assert op.rescale.bias[2] * factors(op.rescale)[2] == pytest.approx(
        0.75 / op.target.scale, abs=0.51
    )


def test_percentile_leaves_out_outliers() -> None:
    weights, inputs = toy()
    inputs[0, 0, 0] = 1000.0
    ranges = [calibrate(MODEL, weights, inputs, share).ranges["input"].high for share in (100, 99)]
    assert ranges[0] == 1000
    assert ranges[1] < 200


@pytest.mark.parametrize("percentile", [99.9, 97.3, 60.0, 100.0])
def test_percentiles_are_those_of_all_inputs_together(percentile) -> None:
    model = MODEL.replace(variable=True, class_token=True)
    weights, _ = toy(model)
    rng = np.random.default_rng(5)
    inputs = [rng.normal(0, 1, (n, 3)) for n in (5, 5, 2, 1, 5, 3, 3)]
    told = []
    ranges = calibrate(
        model, weights, inputs, percentile, lambda done, total: told.append((done, total))
    )
    tensors = [forward(model, weights, values[None]) for values in inputs]
    for name, got in ranges.ranges.items():
        values = np.concatenate([sample[name].ravel() for sample in tensors])
        low, high = np.percentile(values, [100 - percentile, percentile])
        expected = [min(low, 0), max(high, 0)]
        np.testing.assert_allclose([got.low, got.high], expected, atol=1e-12, err_msg=name)
    for head, got in enumerate(ranges.heads["layers.1.probabilities"]):
        values = np.concatenate(
            [sample["layers.1.probabilities"][:, head].ravel() for sample in tensors]
        )
        np.testing.assert_allclose(got.high, np.percentile(values, percentile))
    assert told == [(2, 7), (3, 7), (4, 7), (5, 7), (7, 7)]


def test_weights_of_one_scale() -> None:
    weights, inputs = toy()
    quantized = quantize_model(
        MODEL, weights, inputs, SMALL, Quantization(per_channel=False, balance=0.0)
    )
    op = linears(quantized)["layers.1.query"]
    step = np.abs(weights["layers.1.query.weight"]).max() / 127
    assert np.abs(op.weight.T * step - weights["layers.1.query.weight"]).max() <= step / 2 + 1e-9
    assert len(set(op.rescale.multiplier)) == 1


def test_rows_of_a_text_cannot_saturate() -> None:
    model = MODEL.replace(
        embedding="tokens", features=0, vocabulary=9, types=2, embedding_norm=True
    )
    weights, _ = toy(model)
    quantized = quantize_model(model, weights, [np.zeros(5, int)], SMALL)
    tables = [np.abs(weights[name]).max(axis=0) for name in ("words", "types", "positions")]
    np.testing.assert_allclose(quantized.input.scale * 32767, sum(tables).max())


def test_every_step_reports_its_progress() -> None:
    told: list[tuple[int, int]] = []
    weights, inputs = toy()
    quantized = quantize_model(MODEL, weights, inputs, SMALL, None, lambda *step: told.append(step))
    nodes = len(network(MODEL).nodes)
    assert told == [(8, 8), *((done, nodes) for done in range(nodes))]
    told.clear()
    compare_models(quantized, weights, list(inputs), progress=lambda *step: told.append(step))
    assert told == [(done, 8) for done in range(1, 9)]


def test_quantize_saturates() -> None:
    tensor = quantize_model(MODEL, *toy(), SMALL).input
    assert quantize(np.array([-1e9, 0.0, 1e9]), tensor).tolist() == [-128, tensor.zero, 127]


@pytest.mark.parametrize(
    ("inputs", "percentile", "message"),
    [
        (np.zeros((0, 5, 3)), 100.0, "Calibration needs at least one input"),
        (np.full((1, 5, 3), np.inf), 100.0, "Calibration inputs must be finite numbers"),
        (
            np.zeros((1, 5, 3)),
            50.0,
            "Calibration percentile must be above 50, at most 100, not 50.0",
        ),
    ],
)
def test_bad_calibration(inputs, percentile, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calibrate(MODEL, toy()[0], inputs, percentile)


def test_inputs_of_zeros_calibrate() -> None:
    weights, _ = toy()
    quantized = quantize_model(MODEL, weights, np.zeros((1, 5, 3)), SMALL)
    assert quantized.input.scale > 0


def test_products_are_counted_once() -> None:
    quantized = quantize_model(MODEL, *toy(), SMALL)
    layer = 4 * 12 * 12 * 5 + 2 * 5 * 5 * 12 + 2 * 5 * 12 * 10
    assert quantized.macs(quantized.description.sequence) == 5 * 3 * 12 + 2 * layer + 12 * 4
