"""Seventy-two shaped layers without norms: one loop, a step of the stream for each layer."""

import functools

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.models.inference import run_inferences
from celosia.tb.models.run_inputs import cosine
from celosia.tb.models.whole_model import differing
from celosia.tb.verify.random_models import random_inputs, random_weights

CONFIG = PRESETS["small"].replace(trace=True)
MODEL = ModelDescription(
    name="deep",
    tokens=8,
    features=4,
    dim=32,
    layers=72,
    heads=4,
    ffn=64,
    classes=10,
    norm="none",
    final_norm=False,
    shaped=True,
    skip=False,
)
SCALARS = {"alpha": 1.0, "beta": 0.5, "gamma": 0.5}
"""First values of shaped attention in its training; the same in all layers."""


def case(model):
    rng = np.random.default_rng(0)
    weights = random_weights(rng, model)
    for name, value in weights.items():
        value[:] = SCALARS.get(name.rpartition(".")[2], value)
    inputs = random_inputs(rng, model, 8)
    return weights, inputs, compile_model(model, weights, inputs, CONFIG, Options(search=False))


@functools.cache
def deep() -> tuple[dict, list, Artefact]:
    return case(MODEL)


def test_deep_models_are_close_to_their_floats() -> None:
    weights, inputs, compiled = deep()
    golden = GoldenModel(compiled)
    assert compiled.loops == 1
    for sample in inputs[:3]:
        expected = forward(MODEL, weights, sample[None])["output"][0]
        assert cosine(golden.run(sample)[0], expected) >= 0.99
    wrong, compared = differing(compiled, golden.tensors(inputs[0]), inputs[0])
    assert (wrong, compared > 8 * MODEL.layers) == ([], True)


@pytest.mark.slow
def test_the_circuit_has_the_same_integers() -> None:
    _, inputs, compiled = deep()
    inferences = run_inferences(compiled, "verilator", inputs[:1], FAR)
    assert inferences.mismatches == 0
    assert inferences.tensors > 8 * MODEL.layers


def test_a_stream_that_grows_has_a_step_in_each_layer() -> None:
    model = MODEL.replace(layers=6, skip=True)
    weights, inputs, compiled = case(model)
    steps = [layer[0].target.scale for layer in compiled.graph.layers]
    assert max(steps) > 4 * min(steps)
    golden = GoldenModel(compiled)
    assert differing(compiled, golden.tensors(inputs[0]), inputs[0])[0] == []
    expected = forward(model, weights, inputs[0][None])["output"][0]
    assert cosine(golden.run(inputs[0])[0], expected) >= 0.97
