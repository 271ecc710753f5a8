"""The largest element of DRAIN's output, on the golden machine."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter

CONFIG = PRESETS["small"].replace(argmax=True)


def run_case(machine, values, text):
    """Return ARGMAX and ARGMAX_VALUE after INT8 values went through DRAIN, one times."""
    machine.multiplier[:], machine.shift[:] = 1 << 30, 1
    machine.acc[0, : len(values)] = values
    text = f"DRAIN m=1 n={len(values)} o_addr=64 per_tensor argmax {text}\nHALT"
    machine.load_program(pack(assemble(text)))
    machine.start()
    return machine.read_register("ARGMAX"), machine.read_register("ARGMAX_VALUE")


@pytest.mark.parametrize(
    ("values", "text", "column", "value"),
    [
        ([3], "", 0, 3),
        ([-5, 7, -128, 7, 6], "", 1, 7),
        ([-5, -4], "wide_out", 1, -4),
        ([-5, -4], "relu", 0, 0),
        ([-5, -4], "o_zero=10", 1, 6),
    ],
)
def test_the_first_largest_element(values, text, column, value):
    assert run_case(Interpreter(CONFIG), values, text) == (column, value % (1 << 32))


def test_a_row_in_pieces():
    machine = Interpreter(CONFIG)
    assert run_case(machine, [1, 9, 2], "") == (1, 9)
    assert run_case(machine, [9, 8], "table=3") == (1, 9)
    assert run_case(machine, [0, 10], "table=5") == (6, 10)
    assert run_case(machine, [-3, -2], "") == (1, 2**32 - 2)


def test_accumulators():
    machine = Interpreter(CONFIG)
    machine.multiplier[:], machine.shift[:] = 1 << 30, 1
    machine.acc[[0, 3]] = np.random.default_rng(1).permutation(16).reshape(2, 8)
    wanted = int(np.argmax(machine.acc[[0, 3]].ravel()))
    text = "DRAIN acc_stride=3 m=1 n=16 o_addr=64 per_tensor argmax\nHALT"
    machine.load_program(pack(assemble(text)))
    machine.start()
    assert (machine.argmax, machine.argmax_value) == (wanted, 15)
