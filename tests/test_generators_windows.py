"""Encoders with windows and global tokens: every integer, floats, and cycles of attention."""

import itertools

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.isa import Engine
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.sources import load_source
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.program.executable import ENCODE
from celosia.generators.reference.cache import in_window
from celosia.generators.reference.floats import forward
from celosia.generators.studies.inspection import inspect
from celosia.sim.flow import run
from celosia.tb.models.inference import run_inferences
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL, run_case
from tests.support.longer import longer
from tests.test_generators_depth import FAR
from tests.test_onnx_forms import FLOAT, Form, runs

BASE = MODEL.replace(tokens=21, class_token=False, pooling="mean")


@pytest.mark.parametrize(
    ("preset", "window", "shared"),
    [
        # Every two of the three values.
        case if sum(places) % 3 == 0 else pytest.param(*case, marks=pytest.mark.long)
        for case, places in zip(
            itertools.product(("tiny", "small", "odd"), (1, 4, 30), (0, 1, 3)),
            itertools.product(range(3), repeat=3),
            strict=True,
        )
    ],
)
def test_every_integer_of_a_window(preset, window, shared) -> None:
    rng = np.random.default_rng(window + shared)
    model = BASE.replace(window=window, global_tokens=shared, kv_heads=1)
    config = PRESETS[preset].replace(program_depth=1 << 16)
    run_case(model, random_weights(rng, model), random_inputs(rng, model), config)


def test_a_batch_has_the_window_of_each_input() -> None:
    rng = np.random.default_rng(0)
    model = BASE.replace(tokens=7, window=2, kv_heads=1, layers=1)
    inputs, options = random_inputs(rng, model), Options(batch=2, search=False)
    config = PRESETS["small"].replace(program_depth=1 << 13)
    run_case(model, random_weights(rng, model), inputs, config, options, count=2)


@pytest.mark.parametrize(
    ("tokens", "window", "shared", "depth"), [(13, 3, 1, 1 << 10), *longer((37, 6, 3, 1 << 13))]
)
def test_a_window_on_the_circuit_takes_the_predicted_cycles(tokens, window, shared, depth) -> None:
    rng = np.random.default_rng(3)
    model = BASE.replace(tokens=tokens, window=window, global_tokens=shared, kv_heads=1)
    config = PRESETS["tiny"].replace(program_depth=depth)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model)
    compiled = compile_model(model, weights, inputs, config, Options(search=False))
    inferences = run_inferences(compiled, "verilator", inputs[:1], FAR)
    predicted = compiled.expect(compiled.run(), FAR.latency, FAR.interval).cycles
    assert inferences.mismatches == 0
    assert inferences.figures()["cycles"] == pytest.approx(predicted, rel=0.01)


def test_floats_leave_out_tokens_outside_the_window() -> None:
    rng = np.random.default_rng(1)
    model = BASE.replace(window=2, global_tokens=3)
    weights, (values, *_) = random_weights(rng, model), random_inputs(rng, model)
    first = forward(model, weights, values[None])["layers.0.probabilities"][0]
    seen = np.array([[abs(i - j) <= 2 or min(i, j) < 3 for j in range(21)] for i in range(21)])
    np.testing.assert_array_equal(first > 0, np.broadcast_to(seen, first.shape))
    np.testing.assert_array_equal(in_window(21, 2, 3), seen)


def attention_cycles(**seen: int) -> int:
    """Return the predicted cycles from the first score to the last context of 512 tokens."""
    rng = np.random.default_rng(0)
    model = BASE.replace(tokens=512, dim=128, head_dim=64, heads=2, kv_heads=2, layers=1, **seen)
    config = PRESETS["medium"].replace(program_depth=1 << 14)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model, 1)
    compiled = compile_model(model, weights, inputs, config, Options(search=False))
    steps = run(compiled.words, compiled.entries[ENCODE].pc, [0] * 16)
    steps = [step for step in steps if step.engine is not None]
    times = compiled.expect(compiled.run(), 20).timeline
    begin = min(
        first for step, (first, _) in zip(steps, times, strict=True) if "b_transpose" in step.flags
    )
    ends = [
        end for step, (_, end) in zip(steps, times, strict=True) if step.engine == Engine.VECTOR
    ]
    contexts = zip(compiled.written, ends, strict=True)
    return max(end for written, end in contexts if written.name.endswith(".context")) - begin


def test_windows_take_at_most_two_fifths_of_the_cycles_of_full_attention() -> None:
    assert attention_cycles(window=64, global_tokens=4) <= 0.4 * attention_cycles()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"window": 2, "variable": True}, "variable cannot be true where window is not 0"),
        ({"window": 2, "shaped": True}, "window cannot be 2 where shaped is true"),
        ({"global_tokens": 2}, "global_tokens must be 0 where window is 0, not 2"),
        ({"window": -1}, "window must not be negative, not -1"),
    ],
)
def test_fields_that_exclude_each_other(changes, sentence) -> None:
    with pytest.raises(InputError, match=f"^Model field {sentence}$"):
        BASE.replace(**changes)


@pytest.mark.parametrize("shared", [0, 1])
def test_a_graph_with_a_constant_mask_of_a_window(shared, tmp_path) -> None:
    path, mask = tmp_path / "window.onnx", np.where(in_window(4, 1, shared), 0, -1e9)

    def write() -> None:
        form = Form()
        block = form.block("x", form.add("Identity", mask.astype(np.float32)))
        form.write(path, block, [("x", FLOAT, [1, 4, 6])])

    write()
    description = load_onnx(path).description
    assert (description.window, description.global_tokens) == (1, shared)
    kinds = [part["what"] for part in inspect(load_source(str(path)))["parts"]]
    text = ", window of 1 to each side" + ", 1 global tokens" * shared
    assert any(kind.endswith(text) for kind in kinds)
    runs(path)
    mask[1, 0] = mask[1, 0] - 1e9
    write()
    with pytest.raises(InputError, match="or of all outside a window"):
        load_onnx(path)
