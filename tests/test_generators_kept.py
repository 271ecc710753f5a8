"""Weights that stay on the chip from run to run: in the scratchpad, in slots, or not."""

import dataclasses

import numpy as np
import pytest

from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.registers import CONTROL_ABORT, CONTROL_START
from celosia.generators.frontend import digits
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.lower.residence import WeightHome
from celosia.generators.program.executable import AGAIN
from celosia.generators.runtime.golden import GoldenModel
from celosia.generators.runtime.runs import Runs
from celosia.running import run_files
from celosia.sim.flow import run
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.models.digits_model import compile_digits
from tests.support.compiled_cases import MODEL, random_case

SMALL = PRESETS["small"]
DEEP = SMALL.replace(weight_depth=64)
PAIRS = DEEP.replace(
    array="tree", weight_formats="int4", packed_slots=True, zero_points=False, operand_gating=False
)
VARIABLE = MODEL.replace(tokens=9, variable=True, classes=4)


QUICK = Options(search=False)


def digit_inputs(count: int):
    return digits.patches(digits.load()[1].images[:count])


def read_bytes(compiled, registers) -> int:
    """Return the bytes that a run behind another reads from external memory."""
    steps = run(compiled.words, compiled.entries[AGAIN].pc, registers)
    return sum(step["m"] * step["row_bytes"] for step in steps if step.opcode == Opcode.LOAD)


@pytest.mark.parametrize(
    ("model", "config", "options", "home"),
    [
        (MODEL, SMALL, Options(), WeightHome.SCRATCHPAD),
        (VARIABLE, SMALL, Options(), WeightHome.SCRATCHPAD),
        (MODEL, DEEP, Options(), WeightHome.SLOTS),
        (VARIABLE, DEEP, Options(), WeightHome.SLOTS),
        (MODEL, PAIRS, Options(weights="int4"), WeightHome.SLOTS),
        (MODEL, SMALL.replace(scratchpad_bytes=2048), Options(), WeightHome.STREAM),
        (MODEL, DEEP.replace(weight_depth=12), Options(), WeightHome.SCRATCHPAD),
        (MODEL, SMALL.replace(program_depth=1000), Options(), WeightHome.STREAM),
    ],
)
def test_what_fits_stays(model, config, options, home):
    """Each run, the first and the one behind it, gives the reference's tensors."""
    compiled = random_case(0, model, config, options)
    assert compiled.plan.home == home
    assert compiled.keeps == (home != WeightHome.STREAM)
    if compiled.keeps:
        assert len(compiled.words) <= config.control.program_depth
        whole = [0] * 16
        for number, value in compiled.run().registers.items():
            whole[number] = value
        assert read_bytes(compiled, whole) == compiled.least_bytes(again=True)
        assert compiled.least_bytes() - compiled.least_bytes(again=True) == compiled.kept_bytes
        assert (
            compiled.expect(compiled.run(again=True), 40).cycles
            < compiled.expect(compiled.run(), 40).cycles
        )


@pytest.mark.parametrize("config", [SMALL, DEEP.replace(weight_depth=512)])
def test_a_batch_finds_the_weights_of_the_one_before(config):
    inputs = digit_inputs(4)
    golden = GoldenModel(compile_digits("digits", config, Options(batch=2)))
    assert golden.compiled.keeps
    alone = GoldenModel(compile_digits("digits", config.replace(program_depth=2048), QUICK))
    expected = np.concatenate([alone.run(each)[0] for each in inputs])
    pairs = [golden.run(np.concatenate(inputs[first : first + 2]))[0] for first in (0, 2)]
    np.testing.assert_array_equal(np.concatenate(pairs), expected)


def test_a_run_behind_another_needs_what_that_has_left():
    compiled = compile_digits("digits", SMALL)
    values = digit_inputs(1)[0]
    golden = GoldenModel(compiled)
    golden.run(values)
    expected, _ = golden.run(values)
    golden.machine.sp[:] = 0
    output, _ = golden.run(values)
    assert not np.array_equal(output, expected)


@pytest.mark.slow
def test_the_circuit_reads_weights_once():
    """Of 24 KB that the first image reads, none is read behind it; cycles are as predicted."""
    figures = run_files("digits", SMALL, "verilator", count=3).figures
    again = figures["again"]
    assert figures["mismatches"] == 0
    assert again["read_bytes"] == again["least_bytes"] == 1088
    assert 3 * figures["read_bytes"] == figures["kept_bytes"] + 3 * again["read_bytes"]
    assert again["cycles_per_inference"] < figures["cycles_per_inference"]
    assert abs(again["predicted_cycles"] / again["cycles_per_inference"] - 1) < 0.03


@pytest.mark.slow
def test_weights_are_loaded_again_behind_a_reset_an_abort_and_a_refusal():
    config = SMALL.replace(trace=True)
    compiled = compile_digits("digits", config)
    values, golden = digit_inputs(1)[0], GoldenModel(compiled)
    expected, _ = golden.run(values)
    machine = VerilatorMachine(config, memory_bytes=1 << 16)
    model = Runs(compiled, machine)

    def next_run() -> bool:
        data, _, again = model.run(values)
        assert np.array_equal(compiled.read_output(data), expected)
        return again

    assert [next_run() for _ in range(3)] == [False, True, True]
    machine.reset()
    assert [next_run() for _ in range(2)] == [False, True]
    # Another program is begun, and aborted after it has loaded something.
    machine.write_memory(0, bytes(len(compiled.image)))
    machine.write_register("PC", 0)
    machine.write_register("CONTROL", CONTROL_START)
    machine.clock(2000)
    machine.write_register("CONTROL", CONTROL_ABORT)
    machine.write_memory(0, compiled.image.tobytes())
    assert [next_run() for _ in range(2)] == [False, True]
    words = len(compiled.words)
    model.compiled = dataclasses.replace(
        compiled, entries={**compiled.entries, AGAIN: compiled.entries[AGAIN].__class__(words, [])}
    )
    machine.load_program([*compiled.words, 31])
    with pytest.raises(RuntimeError, match="The run stopped"):
        next_run()
    model.compiled = compiled
    assert [next_run() for _ in range(2)] == [False, True]
    machine.close()
