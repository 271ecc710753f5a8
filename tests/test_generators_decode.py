"""A decoder layer's step: its program against plain NumPy, and the port's rate."""

import re

import numpy as np
import pytest

from arch.presets import PRESETS
from generators.bench.decode import compile_decode
from generators.bench.decode_bench import bench_decode
from generators.bench.decode_layer import expected, random_layer
from sim.checker import check
from sim.interpreter import Interpreter
from tb.machines import make_machine
from tb.memory_timing import SDRAM

TINY = PRESETS["tiny"]


def run_case(config, *, seed=1, **sizes):
    """Compare what the golden machine stores with the layer's equations."""
    layer = random_layer(config, np.random.default_rng(seed), **sizes)
    program = compile_decode(layer, config)
    check(program.words, config)
    machine = Interpreter(config)
    machine.write_memory(0, program.image)
    for words in (program.fill, program.words):
        machine.load_program(words)
        machine.start()
    for name, wanted in expected(layer, config).items():
        stored = program.stored[name]
        found = stored.value(machine.read_memory(stored.addr, stored.size))
        np.testing.assert_array_equal(found, wanted, name)
        assert wanted.std() > 1, f"{name} says nothing"
    return program


@pytest.mark.parametrize(
    ("preset", "sizes"),
    [
        ("tiny", {"dim": 32, "ffn": 64, "batch": 1}),
        ("tiny", {"dim": 30, "ffn": 70, "batch": 3}),
        ("odd", {"dim": 33, "ffn": 61, "batch": 2}),
        ("wide", {"dim": 96, "ffn": 200, "batch": 1}),
        ("medium", {"dim": 288, "ffn": 768, "batch": 1}),
    ],
)
def test_the_program_computes_the_layer(preset, sizes):
    run_case(PRESETS[preset], **sizes)


@pytest.mark.parametrize(
    ("weights", "group", "positions"),
    [("int8", 0, 9), ("int4", 32, 21), ("ternary", 0, 1), ("nf4", 0, 2)],
)
def test_attention_and_weights_of_fewer_bits(weights, group, positions):
    config = TINY.replace(
        scratchpad_bytes=1 << 15, scratchpad_banks=4, weight_formats="int4,nf4,ternary"
    )
    config = config.replace(weight_group=group)
    sizes = {"dim": 24, "ffn": 70, "heads": 3, "positions": positions}
    program = run_case(config, weights=weights, group=group, **sizes)
    counts = 4 * 24 * 24 + 3 * 24 * 70
    bits = {"int8": 8, "int4": 4.6, "ternary": 1.75, "nf4": 4}[weights]
    assert program.weight_bytes <= counts * bits / 8 + 24


def test_four_bits_and_chunks_of_few_rows(monkeypatch):
    monkeypatch.setattr("generators.bench.decode.CHUNK_CYCLES", 20)
    config = TINY.replace(operand_width=4, program_depth=4200)
    run_case(config, dim=32, ffn=64, batch=1)


def test_every_word_comes_once():
    program = run_case(PRESETS["medium"], dim=288, ffn=768, batch=1)
    weights = 4 * 288 * 288 + 3 * 288 * 768
    assert program.weight_bytes == weights
    # Parameters of 16 columns take five lines of 32 bytes.
    parameters = (4 * 288 + 2 * 768 + 288) // 16 * 160 + (2 * 288 + 768) // 16 * 160
    assert program.loaded_words == (weights + parameters + 2 * 288 + 256) // 16


def test_the_circuit_keeps_the_port_busy():
    found = bench_decode(
        TINY,
        lambda config, size: make_machine(config, "icarus", size, SDRAM),
        dim=32,
        ffn=64,
    )
    assert found["mismatches"] == 0
    assert found["counters"]["loaded"] == found["ideal_cycles"]
    # What is not streaming is start and end, here a tenth of all.
    assert found["bandwidth_utilization"] > 0.85


@pytest.mark.slow
def test_medium_reaches_the_ports_rate():
    found = bench_decode(
        PRESETS["medium"],
        lambda config, size: make_machine(config, "verilator", size, SDRAM),
        dim=288,
        ffn=768,
    )
    assert found["mismatches"] == 0
    assert found["counters"]["loaded"] == found["ideal_cycles"]
    assert found["bandwidth_utilization"] > 0.965


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({}, {"dim": 0}, "Size dim of a layer must be positive, not 0"),
        ({}, {"ffn": -1}, "Size ffn of a layer must be positive, not -1"),
        ({}, {"batch": 0}, "Size batch of a layer must be positive, not 0"),
        (
            {"scratchpad_banks": 1},
            {},
            "Decoding needs a scratchpad bank for vectors besides those for weights, but "
            "scratchpad_banks is 1",
        ),
        (
            {},
            {"ffn": 700},
            "Vectors and parameters of the step need more than a scratchpad bank of 8192 bytes",
        ),
        (
            {"program_depth": 300},
            {},
            "The step needs a program of 701 words, but program_depth is 300",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes, sizes, message):
    config = TINY.replace(**changes)
    sizes = {"dim": 32, "ffn": 64, "batch": 1} | sizes
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_decode(random_layer(config, np.random.default_rng(1), **sizes), config)
