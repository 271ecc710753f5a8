"""Models compiled for memories in which blocks, parts or loops must do."""

import dataclasses

import numpy as np
import pytest

import celosia.generators.lower.schedule
from celosia.arch.config import Config
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.blocks import blocks_of
from celosia.generators.program.executable import AGAIN
from celosia.generators.program.predict import predict
from celosia.generators.quantize.quantize import quantize_model
from celosia.tb.verify.random_models import random_model, random_weights
from tests.support.compiled_cases import MODEL, random_case, refusal_or_case
from tests.support.longer import longer

SMALL = PRESETS["small"]


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("tiny", {"placement": "post"}),
        ("odd", {}),
        ("odd", {"norm": "none", "final_norm": False, "shaped": True}),
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


@pytest.mark.parametrize(("ffn", "words"), [(96, 56_972), *longer((192, 36_551))])
def test_parts_of_columns_take_blocks_of_the_source_to_and_fro(ffn, words) -> None:
    # In one direction alone they are 58,076 and 45,967 words.
    config = PRESETS["tiny"].replace(scratchpad_bytes=2048, program_depth=1 << 13)
    model = ModelDescription(
        name="toy", tokens=24, features=32, dim=32, layers=3, heads=4, ffn=ffn, placement="post"
    )
    compiled = random_case(3, model, config)
    assert compiled.plan.spills
    assert predict(compiled.words, config, interval=2).words_read == words


def take_all(monkeypatch) -> None:
    """Let sums of the stream use all accumulators."""
    series = celosia.generators.lower.schedule._series

    def whole(*arguments, **named):
        return [dataclasses.replace(plan, whole=True) for plan in series(*arguments, **named)]

    monkeypatch.setattr(celosia.generators.lower.schedule, "_series", whole)


@pytest.mark.parametrize("depth", [16, 24, 48])
def test_sums_that_a_norm_takes_fit_all_accumulators(monkeypatch, depth) -> None:
    """A tile column has an odd number of rows there, one more than its sums."""
    take_all(monkeypatch)
    config = PRESETS["tiny"].replace(program_depth=1 << 13, acc_depth=depth, fused=True)
    model = ModelDescription(
        name="toy", tokens=8, features=16, dim=24, layers=1, heads=4, ffn=40, placement="post"
    )
    assert random_case(3, model, config).plan.whole


def test_sums_of_the_stream_take_all_accumulators(monkeypatch) -> None:
    config = PRESETS["odd"].replace(scratchpad_bytes=4096, program_depth=1 << 13, acc_depth=128)
    model = ModelDescription(
        name="toy", tokens=24, features=32, dim=24, layers=1, heads=4, ffn=96, placement="post"
    )
    half = random_case(3, model, config)
    take_all(monkeypatch)
    wide = random_case(3, model, config)
    assert wide.plan == dataclasses.replace(half.plan, whole=True)
    assert not half.plan.whole
    drains = [
        sum(draft.opcode == Opcode.DRAIN for draft in unpack(compiled.words))
        for compiled in (half, wide)
    ]
    assert drains[0] > drains[1]


def quantize_case(seed: int, model: ModelDescription, config: Config):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (4, model.tokens, model.features))
    return quantize_model(model, random_weights(rng, model), inputs, config)


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


@pytest.mark.parametrize("seed", [*range(6), *longer(*range(6, 12))])
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
    outcome = refusal_or_case(seed, model, config)
    assert not isinstance(outcome, str) or "in one bank, but scratchpad_bytes" in outcome


@pytest.mark.parametrize("seed", [2, 3, 4, *longer(0, 1, 5)])
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
    loops = []
    while not isinstance(longest, str):
        # Ever shorter memories, until even the most compact program does not fit.
        config = config.replace(program_depth=len(longest.words) - 1)
        loops.append(longest.loops)
        longest = refusal_or_case(seed, model, config)
    assert "program_depth is" in longest or "registers" in longest
    assert loops[-1] > 0


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
    words = straight.entries[AGAIN].pc
    compiled = random_case(0, model, config.replace(program_depth=words // 2))
    assert compiled.loops == 1
    # Nothing else is in a loop: what is not attention takes as many words as before.
    assert words - len(compiled.words) > 10 * 60


def test_too_small_memories_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"^Model toy needs \d+ scratchpad bytes .* but scratchpad"
    ):
        random_case(0, MODEL, SMALL.replace(scratchpad_bytes=512))
    with pytest.raises(ValueError, match=r"^Model toy needs a program of at least \d+ words, but"):
        random_case(0, MODEL, SMALL.replace(program_depth=200))


def test_heads_that_are_wider_than_the_model_need_their_sums() -> None:
    model = MODEL.replace(heads=3, kv_heads=3, head_dim=16)
    message = "Model toy needs max_k of at least 48, but configuration small has 40"
    assert refusal_or_case(1, model, SMALL.replace(max_k=40)) == message


def test_blocks_leave_between_loops_of_heads_and_parts(monkeypatch) -> None:
    schedule = celosia.generators.lower.schedule
    monkeypatch.setattr(schedule, "LOOPS", schedule.LOOPS[-1:])
    monkeypatch.setattr(schedule, "SPILL_LOOPS", schedule.SPILL_LOOPS[-1:])
    model = ModelDescription(name="toy", tokens=24, features=32, dim=32, layers=3, heads=4, ffn=216)
    config = PRESETS["tiny"].replace(scratchpad_bytes=8192, scratchpad_banks=4, program_depth=2048)
    compiled = random_case(3, model, config)
    assert compiled.plan.loop_heads
    assert compiled.plan.loop_parts
    assert compiled.spilled_bytes


def test_a_hidden_layer_passes_in_blocks_between_loops() -> None:
    """BERT-base on `medium`, a quarter as large in each way: as many words, and blocks that leave.

    A program without loops over parts needs 4,584 words or more.
    """
    config = PRESETS["tiny"].replace(
        scratchpad_bytes=1 << 15, scratchpad_banks=8, acc_depth=1024, program_depth=4096
    )
    config = config.replace(lanes=4, max_row=192)
    shape = {"tokens": 32, "dim": 192, "layers": 2, "heads": 12, "ffn": 768}
    kind = {"embedding": "none", "variable": True, "placement": "post"}
    model = ModelDescription(name="toy", **shape, **kind)
    compiled = random_case(3, model, config)
    assert compiled.plan.reloads
    assert compiled.plan.loop_parts
    array = config.array
    assert (
        compiled.expect(compiled.run(), 8).cycles < 1.05 * compiled.macs() / array.rows / array.cols
    )
    assert compiled.least_bytes() < compiled.graph.weight_bytes * 1.1
