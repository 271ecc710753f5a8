"""Accumulators taken in by softmax and norm: the same integers as by way of the scratchpad."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter

CONFIG = PRESETS["small"].replace(fused=True)
M, N = 5, 29
"""Rows and columns; the last of four tile columns is not whole."""

X, R, SUM, OUT = (at << 12 for at in range(4))
PLACES = f"m={M} n={N} o_addr={OUT} o_stride={N}"
TAKEN = "i_addr=3 i_stride=7"
DRAIN = f"DRAIN acc_addr=3 acc_stride=7 m={M} n={N} o_addr={X} o_stride={2 * N} wide_out"
SECOND = f"r_addr={R} r_stride={2 * N}"
WRITTEN = f"s_addr={SUM} s_stride={2 * N}"
NORM = f"{PLACES} params=2 eps_low=9 rms"
SOFTMAX = f"{PLACES} o_zero=-128 limit=20 limit_step=2"

CASES = {
    "norm of a sum": (
        f"{DRAIN} params=16\n"
        f"MAP i_addr={X} i_stride={2 * N} {SECOND} o_addr={SUM} o_stride={2 * N} m={M} n={N} "
        "wide_in wide_out per_tensor params=1 add\n"
        f"NORM i_addr={SUM} i_stride={2 * N} {NORM}",
        f"NORM {TAKEN} {SECOND} {WRITTEN} {NORM} pre=16 add write_sum drain",
    ),
    "norm alone": (
        f"{DRAIN} params=16\nNORM i_addr={X} i_stride={2 * N} {NORM}",
        f"NORM {TAKEN} {NORM} pre=16 drain",
    ),
    "softmax": (
        f"{DRAIN} params=8 per_tensor\n"
        f"SOFTMAX i_addr={X} i_stride={2 * N} {SOFTMAX} params=9 per_tensor",
        f"SOFTMAX {TAKEN} {SOFTMAX} params=8 per_tensor drain",
    ),
}


def run(text: str, seed: int) -> Interpreter:
    """Return a machine of random content behind a program; word 1 is a factor of 1."""
    random, machine = np.random.default_rng(seed), Interpreter(CONFIG)
    machine.sp[:] = random.integers(0, 256, machine.sp.size)
    machine.acc[:] = random.integers(-90_000, 90_000, machine.acc.shape)
    machine.bias[:] = random.integers(-9_000, 9_000, machine.bias.shape)
    machine.multiplier[:] = random.integers(1 << 30, 1 << 31, machine.multiplier.shape)
    machine.shift[:8], machine.shift[8], machine.shift[9:16], machine.shift[16:] = -10, -7, -17, -1
    machine.bias[1], machine.multiplier[1], machine.shift[1] = 0, 1 << 30, 1
    machine.load_program(pack(assemble(f"{text}\nHALT")))
    machine.start()
    return machine


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_taking_accumulators_is_draining_first(case, seed):
    apart, fused = (run(text, seed) for text in CASES[case])
    for memory, expected in ((fused.sp[R:], apart.sp[R:]), (fused.acc, apart.acc)):
        np.testing.assert_array_equal(memory, expected)
    drained = np.zeros(CONFIG.accumulators.depth, np.bool_)
    for tile in range(4):
        drained[3 + 7 * tile : 3 + 7 * tile + M] = True
    assert not fused.acc[drained].any()
    assert fused.acc[~drained].any(axis=1).all()
    assert np.unique(fused.sp[OUT : OUT + M * N]).size > 8
