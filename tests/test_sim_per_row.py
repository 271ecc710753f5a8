"""Parameters for each row: one command equals a command for each row."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter

ROWS, STRIDE = 5, 32


def machine():
    """Return a machine whose memories are random, always the same."""
    rng = np.random.default_rng(6)
    interpreter = Interpreter(PRESETS["small"].replace(fused=True, lanes=8))
    interpreter.acc[:] = rng.integers(-100_000, 100_000, interpreter.acc.shape)
    interpreter.sp[:] = rng.integers(0, 256, interpreter.sp.shape)
    interpreter.bias[:] = rng.integers(-1000, 1000, interpreter.bias.shape)
    interpreter.multiplier[:] = rng.integers(1 << 30, 1 << 31, interpreter.multiplier.shape)
    interpreter.shift[:] = rng.integers(-14, -6, interpreter.shift.shape)
    return interpreter


def run_case(interpreter, lines):
    """Run a program and return the scratchpad and the accumulators."""
    interpreter.load_program(pack(assemble("\n".join([*lines, "HALT"]))))
    interpreter.start()
    return interpreter.sp, interpreter.acc


@pytest.mark.parametrize(
    "text",
    [
        "DRAIN n=8",
        "DRAIN n=24 acc_stride=5 per_tensor",
    ],
)
def test_a_command_is_as_many_of_one_row(text):
    output = f"{text} o_zero=3 o_stride={STRIDE}"
    whole = f"{output} m={ROWS} params=4 o_addr=1024 per_row"
    single = [
        f"{output} m=1 acc_addr={row} params={4 + row} o_addr={1024 + STRIDE * row}"
        for row in range(ROWS)
    ]
    together = run_case(machine(), [whole])
    apart = run_case(machine(), single)
    for memory, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(memory, other)
    assert np.any(together[0] != machine().sp)
