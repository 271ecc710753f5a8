"""Compiled models on the golden machine: every tensor against a model that knows no tiles."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits
from celosia.generators.frontend.weights import load_model
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.program.allocate import uses
from celosia.generators.program.draft import Draft, Ref
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.verify.configurations import random_config
from celosia.tb.verify.random_models import (
    random_inputs,
    random_model,
    random_weights,
    with_zero_tiles,
)
from tests.support.compiled_cases import (
    MODEL,
    random_case,
    refusal_or_case,
    run_case,
)
from tests.support.configurations import FOR_ENCODERS
from tests.support.longer import longer

SMALL = PRESETS["small"]


def test_parameters_that_a_machine_does_not_hold_are_refused() -> None:
    description, weights = load_model("digits")
    inputs = digits.patches(digits.load()[0].images)[:8]
    for changes, message in (
        ({"multiplier_width": 16}, "needs multiplier_width 32, which only decoders whose weights"),
        ({"bias_width": 31}, "needs bias_width 32, .* on the chip do not need, but it is 31$"),
        ({"pre_depth": 9}, "^Model digits needs pre_depth 0, .* but it is 9$"),
    ):
        with pytest.raises(InputError, match=message):
            compile_model(description, weights, inputs, SMALL.replace(**changes))


@pytest.mark.parametrize("preset", FOR_ENCODERS)
@pytest.mark.parametrize("name", ["digits", "digits-simplified"])
def test_digits_on_every_preset(name, preset) -> None:
    description, weights = load_model(name)
    train, test = digits.load()
    config = PRESETS[preset]
    inputs = digits.patches(train.images)[:32]
    compiled = run_case(description, weights, inputs, config)
    golden = GoldenModel(compiled)
    tokens = digits.patches(test.images)[:3]
    float_outputs = forward(description, weights, tokens)["output"]
    for values, expected in zip(tokens, float_outputs, strict=True):
        output, report = golden.run(values)
        assert np.abs(output - expected).max() < 0.5
        assert output.argmax() == expected.argmax()
        # The pooling's sums of ones are no useful products.
        assert report.counters["macs"] == compiled.macs() + 16 * 32


def test_digits_keep_their_accuracy() -> None:
    train, test = digits.load()
    for name, least in (("digits", 0.97), ("digits-simplified", 0.955)):
        description, weights = load_model(name)
        tokens, labels = digits.patches(test.images)[::8], test.labels[::8]
        tensors = forward(description, weights, digits.patches(test.images))["output"]
        assert (tensors[:, 0].argmax(axis=1) == test.labels).mean() >= least
        inputs = digits.patches(train.images)[:256]
        golden = GoldenModel(
            compile_model(description, weights, inputs, SMALL, Options(search=False))
        )
        integer = [int(golden.run(values)[0].argmax()) for values in tokens]
        exact = tensors[::8, 0].argmax(axis=1)
        assert (np.array(integer) == labels).mean() >= (exact == labels).mean() - 0.01


@pytest.mark.parametrize("seed", [*range(20), *longer(*range(20, 40))])
def test_random_models(seed) -> None:
    rng = np.random.default_rng(seed)
    config = PRESETS[str(rng.choice(["tiny", "small", "medium", "wide", "odd"]))]
    config = config.replace(
        zero_points=bool(rng.integers(2)),
        acc_depth=int(rng.integers(30, 200)),
        param_depth=int(rng.integers(60, 200)),
        program_depth=1 << 16,
    )
    zeros = float(rng.choice([0, 0.3, 0.6, 0.95]))
    random_case(seed, random_model(rng), config, zeros=zeros)


@pytest.mark.parametrize("seed", [*range(30), *longer(*range(30, 60))])
def test_random_configurations_run_or_are_refused(seed) -> None:
    rng = np.random.default_rng(seed)
    config = random_config(rng)
    outcome = refusal_or_case(seed, MODEL, config)
    if isinstance(outcome, str):
        starts = ("Model toy needs", "Model toy has rows of", "The loops of model toy")
        if config.row_factors:
            starts = ("Model toy has norms or softmaxes that are not deferred", *starts)
        assert outcome.startswith(starts)


@pytest.mark.parametrize("seed", range(6))
def test_sparse_matrices_are_coded_for_the_zero_skip_unit(seed) -> None:
    rng = np.random.default_rng(seed)
    model = MODEL.replace(tokens=1 + seed % 2, dim=24, ffn=40, norm="rmsnorm")
    config = SMALL.replace(sparse_lanes=8, program_depth=8192, zero_points=bool(seed % 3))
    weights = random_weights(rng, model)
    sparse = {
        name: np.where(rng.random(value.shape) < 0.92, 0, value) if value.ndim == 2 else value
        for name, value in weights.items()
    }
    options = Options(sparse=True, search=False)
    coded = run_case(model, sparse, random_inputs(rng, model), config, options)
    assert Opcode.SPARSE in {instruction.opcode for instruction in unpack(coded.words)}
    # Dense matrices are the array's.
    dense = run_case(model, weights, random_inputs(rng, model), config, options)
    assert Opcode.SPARSE not in {instruction.opcode for instruction in unpack(dense.words)}
    with pytest.raises(ValueError, match="Skipping zero weights needs sparse_lanes, which small"):
        run_case(model, sparse, random_inputs(rng, model), SMALL, options)


def test_zero_tiles_are_neither_stored_nor_computed() -> None:
    train, _ = digits.load()
    model, weights = load_model("digits")
    inputs = digits.patches(train.images)[:16]
    half = weights
    for name in ("up.weight", "down.weight"):
        half = with_zero_tiles(np.random.default_rng(0), half, SMALL, 0.5, name)
    dense, compact = (
        run_case(model, w, inputs, SMALL, Options(search=False)) for w in (weights, half)
    )
    ffn = 2 * 2 * model.dim * model.ffn
    assert not dense.plan.compact
    assert compact.plan.compact
    saved = len(dense.image) - len(compact.image)
    assert saved >= 0.45 * ffn
    assert compact.expect(compact.run(), 40).cycles < 0.95 * dense.expect(dense.run(), 40).cycles
    macs = [GoldenModel(program).run(inputs[0])[1].counters["macs"] for program in (dense, compact)]
    assert macs[0] - macs[1] == model.tokens * saved


def test_a_program_is_the_same_every_time() -> None:
    first, second = (random_case(3, MODEL, SMALL) for _ in range(2))
    assert first.words == second.words
    np.testing.assert_array_equal(first.image, second.image)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": False}, "Model toy needs the unit norm, which configuration small leaves out"),
        (
            {"softmax": False},
            "Model toy needs the unit softmax, which configuration small leaves out",
        ),
        (
            {"activation": False},
            "Model toy needs the unit activation, which configuration small leaves out",
        ),
        (
            {"b_transpose": False},
            "Model toy needs the unit b_transpose, which configuration small leaves out",
        ),
        (
            {"max_k": 11},
            "Model toy needs max_k of at least 12, but configuration small has 11",
        ),
        (
            {"max_row": 11},
            "Model toy needs max_row of at least 12, but configuration small has 11",
        ),
        (
            {"param_depth": 2},
            "Model toy needs 3 parameter words at once, but param_depth is 2",
        ),
        (
            {"mem_addr_width": 8},
            "Model toy needs 5792 bytes of external memory, but mem_addr_width is 8, which "
            "reaches 256",
        ),
    ],
)
def test_what_cannot_run_is_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        random_case(0, MODEL, SMALL.replace(**changes))


def test_the_page_runs() -> None:
    page = Path(__file__).parents[1] / "docs" / "compiler.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_what_is_written_in_place_is_held_until_then() -> None:
    """A table that is loaded between a tensor's LOAD and its step in place has another address."""
    stream, table = Ref("stream"), Ref("table")
    drafts = [
        Draft(Opcode.LOAD, {"sp_addr": stream}, defines="stream"),
        Draft(Opcode.LOAD, {"sp_addr": table}, defines="table"),
        Draft(Opcode.PARAMS, {"i_addr": table}),
        Draft(Opcode.MAP, {"i_addr": stream, "o_addr": stream}, defines="stream"),
        Draft(Opcode.MAP, {"i_addr": table, "o_addr": stream}, defines="stream"),
    ]
    assert uses(drafts)["stream"].intervals == [(0, 3), (4, 4)]
