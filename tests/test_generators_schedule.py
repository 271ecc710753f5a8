"""The search for a program: what it promises, on machines of several shapes."""

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.lower.banks import LATENCY
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.runtime.golden import GoldenModel

MODEL = ModelDescription(
    name="toy", tokens=24, features=8, dim=32, layers=3, heads=4, ffn=96, placement="post"
)
SEED = 5


def random_weights(rng: np.random.Generator, model: ModelDescription) -> Weights:
    return {
        name: rng.normal(0, shape[-1] ** -0.5, shape)
        if len(shape) == 2
        else rng.uniform(0.5, 1, shape)
        for name, shape in model.shapes().items()
    }


def quantized(config):
    rng = np.random.default_rng(SEED)
    inputs = rng.normal(0, 1, (4, MODEL.tokens, MODEL.features))
    return quantize_model(MODEL, random_weights(rng, MODEL), inputs, config), inputs


@pytest.mark.parametrize("preset", ["tiny", "small", "odd"])
def test_a_search_finds_nothing_slower(preset) -> None:
    config = PRESETS[preset]
    model, inputs = quantized(config)
    first = compile_quantized(model, config, Options(search=False))
    best = compile_quantized(model, config, Options())
    assert best.predict(LATENCY).cycles <= first.predict(LATENCY).cycles
    expected, _ = GoldenModel(first).run(inputs[0])
    output, _ = GoldenModel(best).run(inputs[0])
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("preset", ["tiny", "small", "odd", "medium"])
def test_every_byte_is_read_once(preset) -> None:
    # Banks so small that tensors have blocks and weights several parts.
    config = PRESETS[preset].replace(
        scratchpad_banks=16, scratchpad_bytes=1 << 14, program_depth=1 << 13
    )
    model, _ = quantized(config)
    compiled = compile_quantized(model, config, Options(search=False))
    words = compiled.predict(LATENCY).words_read
    assert words * config.mem_bytes == compiled.least_bytes()
    weights = sum(
        op.weight.size
        for op in [*model.before, *(op for layer in model.layers for op in layer), *model.after]
        if hasattr(op, "weight")
    )
    assert weights < compiled.least_bytes() < 2.5 * weights


def test_the_plan_is_the_same_every_time() -> None:
    config = PRESETS["small"]
    model, _ = quantized(config)
    plans = [compile_quantized(model, config, Options()).plan for _ in range(2)]
    assert plans[0] == plans[1]
