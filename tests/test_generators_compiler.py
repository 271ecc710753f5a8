"""Compiled models on the golden machine: every tensor against a model that knows no tiles."""

import dataclasses
import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import generators.lower.schedule
from arch.config import Config
from arch.instruction import unpack
from arch.isa import Opcode
from arch.presets import PRESETS
from generators.compiler import Options, compile_model
from generators.frontend import digits
from generators.frontend.description import ModelDescription
from generators.frontend.embedding import given
from generators.frontend.weights import load_model
from generators.golden import GoldenModel
from generators.lower.blocks import blocks_of
from generators.program.allocate import uses
from generators.program.draft import Draft, Ref
from generators.quantize.quantize import quantize_model
from generators.reference.floats import forward
from tb.configurations import random_config
from tb.fuzz.models import differs
from tb.random_models import random_inputs, random_model, random_weights

SMALL = PRESETS["small"]
MODEL = ModelDescription(name="toy", tokens=5, features=3, dim=12, layers=2, heads=3, ffn=10)


def run_case(model, weights, inputs, config, options=None, count=1):
    """Compile, prove the tokens, and compare every tensor of some inferences."""
    compiled = compile_model(model, weights, inputs, config, options or Options(search=False))
    assert differs(compiled, weights, inputs[:count]) == ""
    return compiled


def random_case(seed: int, model: ModelDescription, config: Config, options=None, zeros=0.0):
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng, model)
    weights = with_zero_tiles(rng, random_weights(rng, model), config, zeros)
    return run_case(model, weights, inputs, config, options)


def with_zero_tiles(rng, weights, config, share, of=""):
    """Return weights with zeros in a share of the tiles of each matrix whose name has ``of``."""
    found = {}
    for name, value in weights.items():
        found[name] = value
        if value.ndim == 2 and of in name and share:
            shape = -(-np.array(value.shape) // [config.cols, config.rows])
            keep = np.ones(np.prod(shape), np.bool_)
            keep[rng.permutation(keep.size)[: round(share * keep.size)]] = False
            tiles = keep.reshape(shape).repeat(config.cols, 0).repeat(config.rows, 1)
            found[name] = np.where(tiles[: value.shape[0], : value.shape[1]], value, 0)
    return found


def quantize_case(seed: int, model: ModelDescription, config: Config):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (4, model.tokens, model.features))
    return quantize_model(model, random_weights(rng, model), inputs, config)


def refusal_or_case(seed: int, model: ModelDescription, config: Config):
    """Return the compiled model, or the sentence that refuses it."""
    try:
        return random_case(seed, model, config)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["digits", "digits-simplified"])
def test_digits_on_every_preset(name, preset) -> None:
    description, weights = load_model(name)
    train, test = digits.load()
    config = PRESETS[preset]
    inputs = digits.patches(train.images)[:64]
    compiled = run_case(description, weights, inputs, config)
    golden = GoldenModel(compiled)
    tokens = digits.patches(test.images)[:8]
    float_outputs = forward(description, weights, tokens)["output"]
    for values, expected in zip(tokens, float_outputs, strict=True):
        output, report = golden.run(values)
        assert np.abs(output - expected).max() < 0.5
        assert output.argmax() == expected.argmax()
        # The pooling's sums of ones are no useful products.
        assert report.counters["macs"] == compiled.macs() + 16 * 32


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("tiny", {"placement": "post"}),
        ("odd", {}),
        ("tiny", {"placement": "post", "variable": True, "embedding": "none"}),
    ],
)
def test_blocks_leave_a_scratchpad_that_is_too_small(preset, changes) -> None:
    config = PRESETS[preset].replace(scratchpad_bytes=2048, program_depth=1 << 13)
    model = ModelDescription(
        name="toy", tokens=24, features=32, dim=32, layers=3, heads=4, ffn=96, **changes
    )
    compiled = random_case(3, model, config)
    assert compiled.plan.spills
    assert compiled.memory_bytes == len(compiled.image) + compiled.spilled_bytes
    stores = [draft for draft in unpack(compiled.words) if draft.opcode == Opcode.STORE]
    assert len(stores) > 1


def test_sums_of_the_stream_take_all_accumulators(monkeypatch) -> None:
    config = PRESETS["odd"].replace(scratchpad_bytes=4096, program_depth=1 << 13, acc_depth=128)
    model = ModelDescription(
        name="toy", tokens=24, features=32, dim=24, layers=2, heads=4, ffn=96, placement="post"
    )
    half = random_case(3, model, config)
    fallbacks = generators.lower.schedule._fallbacks

    def whole(*given, **named):
        return (dataclasses.replace(plan, whole=True) for plan in fallbacks(*given, **named))

    monkeypatch.setattr(generators.lower.schedule, "_fallbacks", whole)
    found = random_case(3, model, config)
    assert found.plan == dataclasses.replace(half.plan, whole=True)
    assert not half.plan.whole
    drains = [
        sum(draft.opcode == Opcode.DRAIN for draft in unpack(compiled.words))
        for compiled in (half, found)
    ]
    assert drains[0] > drains[1]


def test_digits_keep_their_accuracy() -> None:
    train, test = digits.load()
    for name, least in (("digits", 0.97), ("digits-simplified", 0.955)):
        description, weights = load_model(name)
        tokens, labels = digits.patches(test.images)[::4], test.labels[::4]
        found = forward(description, weights, digits.patches(test.images))["output"]
        assert (found[:, 0].argmax(axis=1) == test.labels).mean() >= least
        inputs = digits.patches(train.images)[:256]
        golden = GoldenModel(compile_model(description, weights, inputs, SMALL))
        integer = [int(golden.run(values)[0].argmax()) for values in tokens]
        exact = found[::4, 0].argmax(axis=1)
        assert (np.array(integer) == labels).mean() >= (exact == labels).mean() - 0.01


@pytest.mark.parametrize("seed", range(40))
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


@pytest.mark.parametrize("preset", ["tiny", "odd", "small"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_tensors_larger_than_a_bank(preset, norm) -> None:
    model = MODEL.replace(
        tokens=20, dim=32, heads=4, kv_heads=2, head_dim=8, ffn=96, placement=norm, layers=1
    )
    config = PRESETS[preset].replace(
        scratchpad_banks=16,
        scratchpad_bytes=1 << 13 if preset == "tiny" else 1 << 14,
        program_depth=1 << 16,
    )
    random_case(0, model, config)
    blocks = blocks_of(quantize_case(0, model, config), config.bank_bytes, config)
    for name in ("stream", "hidden"):
        tensor = blocks[name]
        assert len(tensor.sizes()) > 1
        assert max(tensor.sizes().values()) <= config.bank_bytes
        assert sum(tensor.sizes().values()) == tensor.rows * tensor.columns * tensor.size


@pytest.mark.parametrize("seed", range(12))
def test_random_models_in_small_banks(seed) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng).replace(layers=1)
    config = PRESETS[str(rng.choice(["tiny", "odd", "small"]))].replace(
        scratchpad_banks=16,
        scratchpad_bytes=1 << int(rng.integers(12, 15)),
        acc_depth=int(rng.integers(30, 200)),
        param_depth=256,
        program_depth=1 << 16,
    )
    found = refusal_or_case(seed, model, config)
    assert not isinstance(found, str) or "scratchpad bytes at once" in found


@pytest.mark.parametrize("seed", range(6))
def test_loops_where_the_program_memory_is_short(seed) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng).replace(layers=2)
    config = SMALL.replace(
        acc_depth=int(rng.integers(20, 120)),
        param_depth=int(rng.integers(60, 100)),
        program_depth=1 << 16,
    )
    longest = random_case(seed, model, config)
    assert longest.loops == 0
    found = []
    while not isinstance(longest, str):
        # Ever shorter memories, until even the most compact program does not fit.
        config = config.replace(program_depth=len(longest.words) - 1)
        found.append(longest.loops)
        longest = refusal_or_case(seed, model, config)
    assert "program_depth is" in longest or "registers" in longest
    assert found[-1] > 0


@pytest.mark.parametrize(("kv_heads", "levels"), [(2, 4), (4, 3)])
def test_loops_over_layers_heads_and_parts(kv_heads, levels) -> None:
    model = MODEL.replace(tokens=24, dim=16, layers=3, heads=4, kv_heads=kv_heads, head_dim=4)
    config = SMALL.replace(acc_depth=16, program_depth=1 << 16)
    straight = random_case(0, model, config)
    compiled = random_case(0, model, config.replace(program_depth=1100))
    opcodes = [instruction.opcode for instruction in unpack(compiled.words)]
    depth = np.cumsum([(op == Opcode.LOOP) - (op == Opcode.ENDLOOP) for op in opcodes]).max()
    assert len(straight.words) > 5 * len(compiled.words)
    assert depth == levels


def test_heads_alone_become_a_loop() -> None:
    # 5 rows and 2 tile columns in 64 rows: without a fresh start heads would differ in theirs.
    model = MODEL.replace(layers=1, heads=13, kv_heads=13, head_dim=1)
    config = SMALL.replace(acc_depth=64)
    straight = random_case(0, model, config.replace(program_depth=1 << 16))
    config = config.replace(program_depth=len(straight.words) // 2)
    compiled = random_case(0, model, config)
    assert compiled.loops == 1
    # Nothing else is in a loop: what is not attention takes as many words as before.
    assert len(straight.words) - len(compiled.words) > 10 * 60


@pytest.mark.parametrize("seed", range(60))
def test_random_configurations_run_or_are_refused(seed) -> None:
    rng = np.random.default_rng(seed)
    config = random_config(rng)
    found = refusal_or_case(seed, MODEL, config)
    if isinstance(found, str):
        assert found.startswith(("Model toy needs", "The loops of model toy"))


TEXT = MODEL.replace(
    embedding="tokens",
    features=0,
    vocabulary=20,
    types=2,
    tokens=9,
    embedding_norm=True,
    placement="post",
    final_norm=False,
    variable=True,
    unit=True,
)


@pytest.mark.parametrize("program_depth", [1 << 16, 600])
@pytest.mark.parametrize("changes", [{}, {"embedding": "none", "vocabulary": 0, "types": 0}])
def test_one_program_for_every_length(changes, program_depth) -> None:
    model = TEXT.replace(**changes)
    rng = np.random.default_rng(1)
    weights, full = random_weights(rng, model), random_inputs(rng, model, 40)
    inputs = list({len(sample): sample for sample in full}.values())
    assert {len(sample) for sample in inputs} >= {1, 9}
    compiled = run_case(
        model, weights, inputs, SMALL.replace(program_depth=program_depth), count=len(inputs)
    )
    assert (compiled.loops > 0) == (program_depth == 600)
    golden = GoldenModel(compiled)
    for sample in inputs:
        values = given(model, weights, sample[None])[0]
        expected = forward(model, weights, sample[None])["output"][0]
        np.testing.assert_allclose(np.linalg.norm(expected), 1)
        assert expected[0] @ golden.run(values)[0][0] > 0.98


def test_rows_behind_the_length_change_nothing() -> None:
    rng = np.random.default_rng(2)
    weights, inputs = random_weights(rng, TEXT), random_inputs(rng, TEXT)
    compiled = compile_model(TEXT, weights, inputs, SMALL)
    golden = GoldenModel(compiled)
    rows = given(TEXT, weights, inputs[0][None, :3])[0]
    expected = golden.run(rows)[0]
    request = compiled.request(rows)
    addr, data = request.writes[0]
    noise = rng.integers(-9999, 9999, (9, 12)).astype("<i2")
    noise[:3] = np.frombuffer(data, "<i2").reshape(9, 12)[:3]
    request.give(golden.machine)
    golden.machine.write_memory(addr, noise.tobytes())
    golden.machine.start()
    data = golden.machine.read_memory(compiled.output_addr, compiled.output_count)
    np.testing.assert_array_equal(compiled.read_output(data), expected)


def test_inputs_of_a_compiled_model_have_its_shape() -> None:
    rng = np.random.default_rng(2)
    for model, text in ((TEXT, "[at most 9, 12]"), (MODEL, "[5, 3]")):
        inputs = random_inputs(rng, model)
        compiled = compile_model(model, random_weights(rng, model), inputs, SMALL)
        for shape in ((0, 12), (10, 12), (5, 4), (5,)):
            message = f"An input of model toy must have the shape {text}, not {list(shape)}"
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                compiled.request(np.zeros(shape))


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
    found = run_case(model, sparse, random_inputs(rng, model), config, options)
    assert Opcode.SPARSE in {one.opcode for one in unpack(found.words)}
    # Dense matrices are the array's.
    dense = run_case(model, weights, random_inputs(rng, model), config, options)
    assert Opcode.SPARSE not in {one.opcode for one in unpack(dense.words)}
    with pytest.raises(ValueError, match="Skipping zero weights needs sparse_lanes, which small"):
        run_case(model, sparse, random_inputs(rng, model), SMALL, options)


def test_zero_tiles_are_neither_stored_nor_computed() -> None:
    train, _ = digits.load()
    model, weights = load_model("digits")
    inputs = digits.patches(train.images)[:64]
    half = weights
    for name in ("up.weight", "down.weight"):
        half = with_zero_tiles(np.random.default_rng(0), half, SMALL, 0.5, name)
    dense, compact = (run_case(model, w, inputs, SMALL, Options()) for w in (weights, half))
    ffn = 2 * 2 * model.dim * model.ffn
    assert not dense.plan.compact
    assert compact.plan.compact
    saved = len(dense.image) - len(compact.image)
    assert saved >= 0.45 * ffn
    assert compact.predict(40).cycles < 0.95 * dense.predict(40).cycles
    macs = [GoldenModel(one).run(inputs[0])[1].counters["macs"] for one in (dense, compact)]
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


def test_too_small_memories_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"^Model toy needs \d+ scratchpad bytes .* but scratchpad"
    ):
        random_case(0, MODEL, SMALL.replace(scratchpad_bytes=512))
    with pytest.raises(ValueError, match=r"^Model toy needs a program of at least \d+ words, but"):
        random_case(0, MODEL, SMALL.replace(program_depth=200))


def test_the_page_runs() -> None:
    page = Path(__file__).parents[1] / "docs" / "compiler.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_what_is_written_in_place_is_held_until_then() -> None:
    """A table that is loaded between a tensor's LOAD and its step in place lies elsewhere."""
    stream, table = Ref("stream"), Ref("table")
    drafts = [
        Draft(Opcode.LOAD, {"sp_addr": stream}, defines="stream"),
        Draft(Opcode.LOAD, {"sp_addr": table}, defines="table"),
        Draft(Opcode.PARAMS, {"i_addr": table}),
        Draft(Opcode.MAP, {"i_addr": stream, "o_addr": stream}, defines="stream"),
        Draft(Opcode.MAP, {"i_addr": table, "o_addr": stream}, defines="stream"),
    ]
    assert uses(drafts)["stream"].intervals == [(0, 3), (4, 4)]


def test_heads_that_are_wider_than_the_model_need_their_sums() -> None:
    model = MODEL.replace(heads=3, kv_heads=3, head_dim=16)
    message = "Model toy needs max_k of at least 48, but configuration small has 40"
    assert refusal_or_case(1, model, SMALL.replace(max_k=40)) == message
