"""Attention: golden figures, proven tokens, and the circuit."""

import numpy as np
import pytest

from arch.config import Config
from arch.presets import PRESETS
from generators.bench.attention import step_height
from generators.bench.attention_bench import (
    bench_attention,
    compile_attention,
    random_attention,
    visible,
)
from generators.bench.attention_problem import windows
from sim.checker import check
from tb.machines import make_machine
from tb.toolchain import missing_tools

SMALL = PRESETS["small"]
CASES = [
    {"seq": 48, "head_dim": 16, "heads": 2},
    {"seq": 40, "head_dim": 24, "heads": 4, "kv_heads": 2, "mask": "causal"},
    {"seq": 64, "head_dim": 16, "heads": 1, "mask": "window", "span": 20},
    {"seq": 50, "head_dim": 16, "heads": 3, "mask": "padding"},
    {"seq": 50, "head_dim": 16, "heads": 2, "mask": "block"},
    {"seq": 5, "head_dim": 3, "heads": 1},
]


def bench(config: Config, simulator: str = "golden", **arguments):
    return bench_attention(
        config, lambda chosen, memory: make_machine(chosen, simulator, memory), **arguments
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_it_is_right_and_ordered(case, stream):
    problem = random_attention(SMALL, np.random.default_rng(1), **case)
    program = compile_attention(problem, SMALL, stream=stream)
    for start in program.starts:
        check(program.words, SMALL, start)
    found = bench(SMALL, stream=stream, **case)
    assert found["streamed"] == stream
    assert found["max_lsb"] <= 0.51
    assert found["output_max_lsb"] <= 1.5
    assert found["counters"]["macs"] >= found["ideal_cycles"] * SMALL.elements - SMALL.elements


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_points": False, "operand_width": 6, "scratchpad_banks": 2},
        {"running_rows": 20, "rows": 5, "cols": 3, "lanes": 2, "fused": False},
    ],
)
def test_other_machines_do_it_too(changes):
    config = SMALL.replace(**changes)
    for stream in (False, True):
        found = bench(config, seq=44, head_dim=12, heads=6, kv_heads=2, stream=stream)
        assert found["max_lsb"] <= 0.51
        assert found["running_rows"] <= config.running_rows


def test_long_sequences_need_no_more_memory():
    sizes = []
    for seq in (512, 1024):
        problem = random_attention(SMALL, np.random.default_rng(1), seq=seq, head_dim=64, heads=2)
        program = compile_attention(problem, SMALL)
        assert program.streamed
        sizes.append((program.scratchpad_bytes, program.acc_rows, len(program.words)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("mask", ["none", "causal", "window", "padding", "block"])
def test_windows_are_the_masks(mask):
    config, seq, span = SMALL, 37, 10
    problem = random_attention(
        config, np.random.default_rng(1), seq=seq, head_dim=4, heads=1, mask=mask, span=span
    )
    seen = np.zeros((seq, seq), np.bool_)
    for window in windows(mask, seq, span):
        for row in range(window.rows):
            start = max(window.start + row * window.start_step, 0)
            limit = min(window.limit + row * window.limit_step, window.keys)
            seen[window.row + row, window.key + start : window.key + max(start, limit)] = True
    assert np.array_equal(seen, visible(problem))


def test_steps_hide_the_vector_engine_with_few_rows():
    medium = PRESETS["medium"]
    assert step_height(medium, 64, 128) == 16
    assert step_height(medium, 32, 128) == 16
    assert step_height(medium, 64, 16) % 16 == 0


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
@pytest.mark.parametrize("stream", [False, True])
def test_the_circuit_is_the_golden_machine(stream):
    config = SMALL.replace(rows=4, cols=4, lanes=2, scratchpad_bytes=16384, acc_depth=256)
    arguments = {"seq": 20, "head_dim": 8, "heads": 2, "kv_heads": 1, "mask": "causal"}
    found = bench(config, "icarus", stream=stream, **arguments)
    assert found["mismatches"] == 0
    assert found["counters"]["macs"] >= found["ideal_cycles"] * 16 - 16


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"seq": 0}, "Size seq of attention must be positive, not 0"),
        ({}, {"heads": 3, "kv_heads": 2}, "Attention of 3 heads cannot share 2 key heads"),
        (
            {},
            {"mask": "full"},
            "Unknown mask 'full'; known are none, causal, window, padding, block",
        ),
        ({}, {"mask": "block", "span": 9}, "Span of a mask must be from 1 to seq = 8, not 9"),
        (
            {"attention": False},
            {},
            "Attention needs the unit attention, which small lacks",
        ),
        (
            {"b_transpose": False},
            {},
            "Attention needs the unit b_transpose, which small lacks",
        ),
        (
            {"program_depth": 64},
            {"stream": False},
            "The attention needs a program of 84 words, but program_depth is 64",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, arguments, message):
    with pytest.raises(ValueError, match=r".") as caught:
        bench(SMALL.replace(**changes), **({"seq": 8, "head_dim": 8, "heads": 1} | arguments))
    assert str(caught.value) == message
