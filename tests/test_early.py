"""Models that do not fit are refused before their calibration."""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import pytest

from celosia import compiling
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.templates import deepened
from celosia.generators.lower import early, planner
from celosia.generators.lower import encoder_compiler as compiler
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.products import Product
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.models import load
from celosia.tb.verify.random_models import random_weights
from tests.support.decoders import CONFIGS, DECODERS, GPT, LLAMA, random_decoder

ENCODER = ModelDescription(
    name="deep",
    tokens=4,
    features=8,
    embedding="linear",
    dim=16,
    layers=5,
    heads=2,
    ffn=32,
    classes=3,
)


class Large(Mapping):
    """Weights of a description's shapes, which take no memory."""

    def __init__(self, model: ModelDescription | TextDescription):
        self._shapes = model.shapes()

    def __getitem__(self, name: str) -> np.ndarray:
        return np.broadcast_to(np.float64(0.5), self._shapes[name])

    def __iter__(self):
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def sized(layers: int) -> TextDescription:
    """Return a decoder of 7,077,888 weights a layer and 24,576,000 behind them."""
    return TextDescription(
        name="large",
        vocabulary=32000,
        positions=64,
        dim=768,
        layers=layers,
        heads=12,
        ffn=3072,
        activation="gelu",
        gated=False,
    )


@pytest.mark.parametrize(
    ("layers", "changes", "memory", "sentence"),
    [
        (4, {}, None, ""),
        (
            16,
            {"mem_addr_width": 27},
            None,
            "mem_addr_width is 27, which reaches 134217728; set mem_addr_width=28 or more",
        ),
        (4, {"mem_addr_width": 26}, None, ""),
        (
            40,
            {},
            None,
            "mem_addr_width is 28, which reaches 268435456, the most there is; --quantize "
            "weights=int6 makes them 230768640",
        ),
        (4, {}, 1 << 20, "external memory has 1048576; take a smaller model"),
        (
            4,
            {},
            1 << 25,
            "external memory has 33554432; --quantize weights=int5 makes them 33054720",
        ),
        (400, {"weight_depth": 4}, None, ""),
    ],
)
def test_external_memory_is_counted_from_shapes(layers, changes, memory, sentence) -> None:
    model, config = sized(layers), PRESETS["medium"].replace(**changes)
    if not sentence:
        early.check_memory(model, Large(model), config, Quantization(), memory)
        return
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        early.check_memory(model, Large(model), config, Quantization(), memory)


def test_weights_with_tiles_of_zeros_are_left_to_the_compiler() -> None:
    model = sized(40)
    weights = dict(Large(model))
    name = next(name for name, shape in model.shapes().items() if len(shape) == 2)
    name = "layers.0.up.weight" if "layers.0.up.weight" in weights else name
    weights[name] = np.zeros_like(weights[name])
    names = early._linear_weights(model)
    assert name in names
    early.check_memory(model, weights, PRESETS["medium"], Quantization())


def _quantized(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list of the layers and the inputs of each calibration to come."""
    seen = []
    plain = compiler.quantize_model

    def noting(model, weights, inputs, *more):
        seen.append((model.layers, len(inputs)))
        assert isinstance(more[1], Options)
        return plain(model, weights, inputs, *more)

    monkeypatch.setattr(compiler, "quantize_model", noting)
    return seen


def test_a_program_that_is_too_long_is_refused_by_its_first_layers(monkeypatch) -> None:
    monkeypatch.setattr(early, "MANY", 0)
    seen = _quantized(monkeypatch)
    rng = np.random.default_rng(1)
    weights, inputs = random_weights(rng, ENCODER), rng.normal(0, 1, (6, 4, 8))
    config = PRESETS["tiny"]
    fits = compile_model(ENCODER, weights, inputs, config, Options(search=False))
    assert seen == [(2, 1), (5, 6)]
    words = len(fits.words)
    assert words <= config.control.program_depth
    seen.clear()
    with pytest.raises(
        InputError,
        match=r"^Model deep needs a program of at least \d+ words, but program_depth is 128; "
        r"it fits with program_depth=\d+",
    ):
        compile_model(ENCODER, weights, inputs, config.replace(program_depth=128))
    assert seen == [(2, 1)]


@pytest.mark.parametrize(
    ("model", "changes", "units"),
    [
        (ENCODER, {"softmax": False}, "softmax"),
        (ENCODER, {"norm": False, "b_transpose": False}, "b_transpose and norm"),
        (ENCODER.replace(activation="relu", head_hidden=8), {"activation": False}, "activation"),
        (ENCODER.replace(activation="relu", norm="none", final_norm=False), {"norm": False}, ""),
    ],
)
def test_units_are_looked_for_before_any_calibration(monkeypatch, model, changes, units) -> None:
    monkeypatch.setattr(early, "MANY", 0)
    seen = _quantized(monkeypatch)
    rng = np.random.default_rng(1)
    weights, inputs = random_weights(rng, model), rng.normal(0, 1, (6, 4, 8))
    config = PRESETS["tiny"].replace(**changes)
    if not units:
        compile_model(model, weights, inputs, config, Options(search=False))
        return
    several = "s" * (" and " in units)
    fields = " and ".join(f"{unit}=true" for unit in units.split(" and "))
    with pytest.raises(
        InputError,
        match=rf"^Model deep needs the unit{several} {units}, which configuration tiny leaves out; "
        rf"set {fields}$",
    ):
        compile_model(model, weights, inputs, config)
    assert seen == []


def test_models_of_few_weights_are_compiled_at_once(monkeypatch) -> None:
    seen = _quantized(monkeypatch)
    rng = np.random.default_rng(1)
    weights, inputs = random_weights(rng, ENCODER), rng.normal(0, 1, (6, 4, 8))
    compile_model(ENCODER, weights, inputs, PRESETS["tiny"], Options(search=False))
    assert seen == [(5, 6)]


def test_a_text_is_refused_by_its_first_layers(celosia, monkeypatch) -> None:
    monkeypatch.setattr(early, "MANY", 0)
    monkeypatch.setattr(early, "LAYERS", 1)
    words = ("compile", "tales", "--config", "small", "--set", "program_depth=256", "--context")
    code, out, err = celosia(*words, "64", "--out", "/nowhere")
    assert (code, out) == (2, "")
    assert re.search(
        r"celosia: Model tales needs a program of at least \d+ words, but program_depth is 256; "
        r"it fits with program_depth=\d+",
        err,
    )
    assert "Calibration" not in err


def test_rows_of_many_scores_are_refused_before_calibration() -> None:
    small, model = PRESETS["small"], ENCODER.replace(tokens=2048, layers=1)
    message = (
        "Model deep attends to 2048 tokens and needs max_row of at least 2048 and max_k of at "
        "least 2048, but configuration few has 512 and 1024; set max_row=2048 and max_k=2048, or, "
        "where the model leaves the number of tokens open, give at most 512 with --context"
    )
    few = small.replace(name="few", max_row=512, max_k=1024)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compile_model(model, Large(model), [], few)
    long = model.replace(tokens=9000)
    message = (
        "Model deep attends to 9000 tokens, but a row of scores has at most 8192 in any "
        "configuration (max_row); make the model for at most 8192 tokens"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compile_model(long, Large(long), [], few)


def test_rows_of_many_scores_fit_as_the_refusal_says(monkeypatch) -> None:
    monkeypatch.setattr(early, "MANY", 100)
    few, model = (
        PRESETS["small"].replace(max_row=16, max_k=32),
        ENCODER.replace(tokens=40, layers=1),
    )
    weights, rng = random_weights(np.random.default_rng(1), model), np.random.default_rng(2)

    def made(config, tokens: int) -> None:
        longer = model.replace(tokens=tokens)
        own = {
            name: rows[:tokens] if name == "positions" else rows for name, rows in weights.items()
        }
        early.check_rows(longer, config)
        compile_model(longer, own, rng.normal(0, 1, (4, tokens, 8)), config, Options(search=False))

    with pytest.raises(InputError, match=r"set max_row=40 and max_k=40, or, .* at most 16 with"):
        made(few, 40)
    monkeypatch.setattr(compiler, "check_units", lambda *arguments: None)
    monkeypatch.setattr(compiler, "check_layers", lambda *arguments: None)
    made(few.replace(max_row=40, max_k=40), 40)
    made(few, 16)


def test_a_scratchpad_that_is_too_small_is_refused_before_weights_are_cut(monkeypatch) -> None:
    def keep_layers(*_arguments):
        raise AssertionError("weights are cut")

    monkeypatch.setattr(planner, "_keep_layers", keep_layers)
    config = CONFIGS["streamed"].replace(scratchpad_bytes=4096)
    with pytest.raises(InputError, match=r"^Model llama needs \d+ scratchpad bytes and \d+ of"):
        compile_text(DECODERS["llama"], config, context=40)


def test_a_head_of_many_parts_takes_time_in_proportion(monkeypatch) -> None:
    count = 0

    def within(*arguments):
        nonlocal count
        count += 1
        return plain(*arguments)

    plain, counts = Product.within, list[int]()
    monkeypatch.setattr(Product, "within", within)
    for vocabulary in (256, 1024):
        decoder = random_decoder(dataclasses.replace(LLAMA, vocabulary=vocabulary))
        compile_text(decoder, CONFIGS["passing"], context=40)
        counts.append(count - sum(counts))
    assert counts[1] < 4.5 * counts[0]


DEEP = dataclasses.replace(LLAMA, layers=5)
PAIR = dataclasses.replace(GPT, source_layers=1, source_positions=8)


@pytest.mark.parametrize("model", [LLAMA, GPT, PAIR], ids=["llama", "gpt", "pair"])
def test_a_repeated_layer_makes_the_program_of_the_whole_model(model) -> None:
    deep, how = dataclasses.replace(model, layers=4), Quantization(texts=1, length=4)
    few, whole = untrained(model, how), untrained(deep, how)
    config = CONFIGS["resident"].replace(weight_depth=2048, table_slots=16)
    made = [
        compile_text(decoder, config, context=24, search=False)
        for decoder in (whole, deepened(few, deep))
    ]
    words, slots, sizes = zip(
        *((len(each.words), each.slots, len(each.setup[-1].image)) for each in made), strict=True
    )
    assert words[0] == words[1]
    assert slots[0] == slots[1]
    assert sizes[0] == sizes[1]


def _check_deep(model, config, compile=compile_text, progress=None) -> None:
    early.check_layers(
        model,
        Large(model),
        config,
        Quantization(),
        lambda some: untrained(some, Quantization(texts=1, length=4)),
        lambda graph: compile(graph, config, context=24, search=False),
        progress,
    )


def test_layers_behind_the_first_ones_are_counted_before_calibration(monkeypatch) -> None:
    monkeypatch.setattr(early, "MANY", 0)
    config = CONFIGS["resident"].replace(weight_depth=256)
    message = (
        r"527 weight slots of 8 x 8, but weight_depth is 256; it fits with weight_depth=527, or"
    )
    tries: list[tuple[int, int]] = []
    with pytest.raises(InputError, match=message):
        _check_deep(DEEP, config, progress=lambda *step: tries.append(step))
    assert [done for done, _ in tries] == [*range(1, len(tries) + 1)]
    assert tries[-1][1] >= len(tries) > 1
    # Narrow parameters are for weights that stay on the chip, so slots for two tiles are no remedy.
    with pytest.raises(InputError, match=r"is 256; it fits with weight_depth=527$"):
        _check_deep(DEEP, config.replace(multiplier_width=16))
    # Of layers that differ the first ones alone are compiled, and these fit.
    unequal = dataclasses.replace(DEEP, rotated="10")
    _check_deep(unequal, config)
    with pytest.raises(InputError, match=r"of the first 2 layers alone, it fits with weight_depth"):
        _check_deep(unequal, config.replace(weight_depth=64))

    def refuse(*_arguments, **_options):
        raise InputError("never")

    with pytest.raises(InputError, match=r"^never$"):
        _check_deep(DEEP, config, refuse)
    _check_deep(unequal, config, refuse)


def test_the_memory_of_an_encoders_host_is_compared_before_calibration(monkeypatch) -> None:
    def compile_model(*_arguments):
        raise AssertionError("calibrated")

    monkeypatch.setattr(early, "MANY", 0)
    monkeypatch.setattr(compiling, "compile_model", compile_model)
    message = r"^Model digits needs at least \d+ bytes of external memory for its weights, but "
    with pytest.raises(InputError, match=message + "external memory has 1024; "):
        compiling.compile_encoder(
            load("digits"), PRESETS["small"], [], Options(), memory_bytes=1024
        )
