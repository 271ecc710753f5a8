"""The search for a program: its promises, on machines of several shapes."""

import dataclasses

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.templates import are_alike
from celosia.generators.lower import lower as lower_module
from celosia.generators.lower import search
from celosia.generators.lower.banks import LATENCY
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from celosia.generators.lower.fitting import FitError, Reason
from celosia.generators.lower.lower import lower
from celosia.generators.lower.schedule import LOOPS, schedule
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


def quantized(config, model=MODEL):
    rng = np.random.default_rng(SEED)
    inputs = rng.normal(0, 1, (4, model.tokens, model.features))
    return quantize_model(model, random_weights(rng, model), inputs, config), inputs


@pytest.mark.parametrize("preset", ["tiny", "small", "odd"])
def test_a_search_finds_nothing_slower(preset) -> None:
    config = PRESETS[preset]
    model, inputs = quantized(config, dataclasses.replace(MODEL, layers=2))
    first = compile_quantized(model, config, Options(search=False))
    best = compile_quantized(model, config, Options())
    assert best.expect(best.run(), LATENCY).cycles <= first.expect(first.run(), LATENCY).cycles
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
    words = compiled.expect(compiled.run(), LATENCY).words_read
    assert words * config.mem_bytes == compiled.least_bytes()
    weights = sum(
        op.weight.size
        for op in [*model.before, *(op for layer in model.layers for op in layer), *model.after]
        if hasattr(op, "weight")
    )
    assert weights < compiled.least_bytes() < 2.5 * weights


def test_the_plan_is_the_same_every_time() -> None:
    config = PRESETS["small"]
    model, _ = quantized(config, dataclasses.replace(MODEL, layers=1))
    plans = [compile_quantized(model, config, Options()).plan for _ in range(2)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("preset", "changes", "searched"),
    [
        ("small", {"program_depth": 1 << 14}, True),
        ("small", {"scratchpad_bytes": 1 << 12, "program_depth": 1 << 16}, False),
        ("odd", {"scratchpad_bytes": 1 << 13}, False),
    ],
    ids=["straight", "spilled", "looped"],
)
def test_a_sample_of_layers_gives_the_program_of_all(
    preset, changes, searched, monkeypatch
) -> None:
    config, options = PRESETS[preset].replace(**changes), Options(search=searched)
    model, _ = quantized(config, dataclasses.replace(MODEL, layers=7))
    lowered: list[int] = []

    def noted(*arguments, sample: bool = False):
        made = lower(*arguments, sample=sample)
        lowered.append(made.missing)
        return made

    monkeypatch.setattr(search, "lower", noted)
    sampled = compile_quantized(model, config, options)
    assert max(lowered) >= 3
    assert bool(sampled.spilled_bytes) == (preset == "small" and not searched)
    assert lowered.count(0) <= 2
    monkeypatch.setattr(search, "are_alike", lambda layers: False)
    whole = compile_quantized(model, config, options)
    assert sampled.words == whole.words
    assert sampled.plan == whole.plan
    np.testing.assert_array_equal(sampled.image, whole.image)


def test_loads_are_not_made_smaller_where_tensors_have_no_room(monkeypatch) -> None:
    config = PRESETS["small"].replace(scratchpad_bytes=1 << 12, program_depth=1 << 16)
    model, _ = quantized(config, dataclasses.replace(MODEL, layers=2))
    tried = []

    def noted(*arguments, **options):
        tried.append(arguments)
        return lower(*arguments, **options)

    monkeypatch.setattr(search, "lower", noted)
    quick = compile_quantized(model, config, Options(search=False))
    assert quick.plan.spills
    few = len(tried)
    monkeypatch.setattr(
        search.Search,
        "skips_smaller",
        lambda self, plan, refused: refused.reason == Reason.TOO_LONG,
    )
    patient = compile_quantized(model, config, Options(search=False))
    assert len(tried) - few > 2 * few
    assert quick.words == patient.words


def test_layers_that_differ_are_of_no_template() -> None:
    model, _ = quantized(PRESETS["small"])
    first, *others = model.layers
    assert are_alike(model.layers)
    number = next(i for i, op in enumerate(first) if isinstance(op, Linear) and not op.relu)
    other = dataclasses.replace(first[number], relu=True)
    assert not are_alike([(*first[:number], other, *first[number + 1 :]), *others])
    assert not are_alike([first[:-1], *others])


@pytest.fixture
def sections(monkeypatch) -> list[str]:
    """The names of the sections that are lowered."""
    names, section = list[str](), lower_module._Sections.section

    def noted(self, name, ops):
        names.append(name)
        return section(self, name, ops)

    monkeypatch.setattr(lower_module._Sections, "section", noted)
    return names


def test_a_program_that_is_far_too_long_is_refused_after_one_layer(sections) -> None:
    config = PRESETS["tiny"].replace(program_depth=16)
    model, _ = quantized(config, dataclasses.replace(MODEL, layers=4))
    with pytest.raises(FitError, match="needs a program of at least"):
        schedule(model, config, search=False)
    assert sections == ["before", "layer"] * len(LOOPS)


def test_nothing_is_lowered_where_operand_and_result_have_no_room(sections) -> None:
    config = PRESETS["tiny"].replace(scratchpad_bytes=1024, program_depth=1 << 14)
    model, _ = quantized(config)
    with pytest.raises(FitError, match="needs at least 3840 scratchpad bytes") as refusal:
        schedule(model, config, search=False, spills=False)
    assert sections == []
    assert refusal.value.remedies == ({"scratchpad_bytes": 4096},)
    assert schedule(model, config, search=False).source.spilled
