"""The 16-bit functions: circuit against golden model, golden model against float64."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from arch.functions import WIDE_FUNCTIONS
from arch.polynomial import wide_polynomial
from hdl.arithmetic.polynomial import POLYNOMIAL_LATENCY, FunctionUnit
from sim.polynomial import evaluate
from tb.simulate import simulate

ALL = np.arange(-(1 << 15), 1 << 15)


@pytest.mark.parametrize("name", WIDE_FUNCTIONS)
def test_model_is_within_one_of_float64(name):
    wide = WIDE_FUNCTIONS[name]
    y = evaluate(wide_polynomial(wide), ALL)
    assert np.abs(y - wide.in_units(ALL)).max() <= 1.0
    assert y.min() >= -(1 << 15)
    assert y.max() < 1 << 15


@pytest.mark.parametrize("name", WIDE_FUNCTIONS)
def test_circuit_equals_model_at_every_segment(name):
    polynomial = wide_polynomial(WIDE_FUNCTIONS[name])
    length = 1 << polynomial.t_width
    starts = np.arange(polynomial.segments) * length - (1 << 15)
    x = np.concatenate([starts, starts + length - 1, starts + length // 3])
    unit = FunctionUnit(name, 1)
    got = []

    async def bench(ctx):
        ctx.set(unit.o.ready, 1)
        for cycle in range(len(x) + POLYNOMIAL_LATENCY):
            ctx.set(unit.i.valid, cycle < len(x))
            ctx.set(unit.i.payload[0], int(x[cycle % len(x)]))
            *_, valid, y = await ctx.tick().sample(unit.o.valid, unit.o.payload[0])
            assert valid == (cycle >= POLYNOMIAL_LATENCY)
            if valid:
                got.append(y)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert got == evaluate(polynomial, x).tolist()


@pytest.mark.parametrize(
    ("simulator", "name", "lanes"),
    [("verilator", "gelu_erf", 5), ("icarus", "exp", 2)],
)
def test_bench(simulator, name, lanes):
    """Verilator takes all 65,536 operands, Icarus some thousands."""
    simulate(
        FunctionUnit(name, lanes),
        bench="tb.bench_polynomial",
        simulator=simulator,
        seed=7,
        parameters={"function": name, "lanes": lanes, "all": simulator == "verilator"},
    )


def test_parameters_are_checked():
    known = "gelu_erf, gelu_tanh, silu, exp, sigmoid, tanh"
    with pytest.raises(ValueError, match=f"^Unknown 16-bit function 'sine'; known are {known}$"):
        FunctionUnit("sine", 1)
    message = "^Function unit lanes must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        FunctionUnit("exp", 0)
