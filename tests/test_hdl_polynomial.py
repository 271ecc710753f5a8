"""Functions of 16-bit operands: circuit against golden model, golden model against float64."""

import math

import numpy as np
import pytest

from celosia.arch.functions import FUNCTIONS, SMOOTH_FUNCTIONS
from celosia.arch.polynomial import function_polynomial, pack_polynomial, unpack_polynomial
from celosia.hdl.functions.function_table import FunctionTable
from celosia.sim.polynomial import evaluate_table
from celosia.tb.benches.simulate import simulate

ALL = np.arange(-(1 << 15), 1 << 15)


@pytest.mark.parametrize("name", SMOOTH_FUNCTIONS)
def test_model_is_within_a_step_of_float64(name):
    for reach, step, zero in ((3, 1 / 64, -101), (4, 4.2 / 255, -118)):
        x_scale = reach / (1 << 15)
        table = pack_polynomial(function_polynomial(FUNCTIONS[name], x_scale, step, zero))
        assert table.min() >= -128
        assert table.max() < 128
        exact = np.clip(FUNCTIONS[name](x_scale * ALL) / step + zero, -128, 127)
        # Half a step is the rounding's; what the guard bits drop is an eighth at most.
        assert np.abs(evaluate_table(table, ALL, -128, 127) - exact).max() < 0.65


def test_coefficients_are_the_bytes_of_a_table():
    polynomial = function_polynomial(FUNCTIONS["silu"], 2.0**-12, 2.0**-6, -100)
    table = pack_polynomial(polynomial)
    assert unpack_polynomial(table) == polynomial
    # Segment 16 is the first in the order of operands from 0 on.
    c0 = int(table[128]) & 0xFF | int(table[129]) << 8
    assert c0 == polynomial.coefficients[0][0]


def test_a_jump_keeps_within_the_widths_of_coefficients():
    polynomial = function_polynomial(lambda x: np.where(x > 0.1, 1e9, -1e9), 2.0**-15, 1.0, 0)
    assert unpack_polynomial(pack_polynomial(polynomial)) == polynomial


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_scales_are_checked(scale):
    message = f"^Polynomial x_scale must be positive and finite, not {scale}$"
    with pytest.raises(ValueError, match=message):
        function_polynomial(FUNCTIONS["tanh"], scale, 1.0, 0)


@pytest.mark.parametrize(
    ("simulator", "parameters"),
    [
        ("verilator", {"lanes": 5, "slots": 6, "operand_width": 8}),
        ("icarus", {"lanes": 2, "slots": 2, "operand_width": 6}),
    ],
)
def test_bench(simulator, parameters):
    simulate(
        FunctionTable(**parameters),
        bench="celosia.tb.benches.bench_function_table",
        simulator=simulator,
        seed=7,
        parameters=parameters,
    )
