"""The requantizer: published vectors, golden model, both simulators."""

import re
from pathlib import Path

import numpy as np
import pytest

from celosia.hdl.arithmetic.requantize import Requantizer, RoundingShift, bounds_of
from celosia.sim.requantize import requantize, rounding_shift
from celosia.tb.benches.bench_requantize import BOUNDS, NAMES, random_operands
from celosia.tb.benches.simulate import simulate
from tests.support.simulation import run_bench

VECTORS = Path(__file__).parent / "data" / "tflite"


def run_case(unit, operands, result=None):
    """Return the unit's results for columns of operands, one row a cycle without pauses."""
    results = []
    bounds = [operands.get(name) for name in BOUNDS]
    operands = {name: column for name, column in operands.items() if name not in BOUNDS}

    async def bench(ctx):
        ctx.set(unit.en, 1)
        count = len(next(iter(operands.values())))
        for cycle in range(count + unit.latency):
            if cycle < count:
                for name, column in operands.items():
                    ctx.set(getattr(unit, name), int(column[cycle]))
            if bounds[0] is not None and 0 <= (behind := cycle - unit.bounds_delay) < count:
                ctx.set(unit.bounds, bounds_of(*(int(column[behind]) for column in bounds)))
            if cycle >= unit.latency:
                results.append(ctx.get(unit.y if result is None else result))
            await ctx.tick()

    run_bench(unit, bench)
    return np.array(results)


@pytest.mark.parametrize(
    "name", ["linear", "linear_per_channel", "linear_weight_zero_point", "matmul_b_transposed"]
)
def test_equals_tflite(name):
    path = VECTORS / f"{name}.npz"
    with np.load(path) as arrays:
        v = dict(arrays)
    if name.startswith("linear"):
        left, right = v["x"], v["w"].T
        left_zero, right_zero = v["x_zero_point"], v["w_zero_point"]
    else:
        left, right = v["a"], np.swapaxes(v["b"], -1, -2)
        left_zero, right_zero = v["a_zero_point"], v["b_zero_point"]
    sums = (left.astype(np.int64) - left_zero) @ (right.astype(np.int64) - right_zero)
    columns = (
        v.get("bias", 0),
        v["multiplier"],
        v["shift"],
        v["y_zero_point"],
        v.get("y_min", -128),
        v.get("y_max", 127),
    )
    operands = [np.broadcast_to(column, sums.shape).ravel() for column in (sums, *columns)]
    y = run_case(Requantizer(), dict(zip(NAMES, operands, strict=True)))
    np.testing.assert_array_equal(y, v["y"].ravel())


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("width", [32, 16])
def test_equals_golden_model(width, registered):
    operands = random_operands(np.random.default_rng(5), 4000)
    operands["multiplier"] = operands["multiplier"] >> (32 - width) << (32 - width)
    expected = requantize(**operands)
    assert np.unique(expected).size > 700
    np.testing.assert_array_equal(run_case(Requantizer(width, registered), operands), expected)


@pytest.mark.parametrize("width", [1, 2, 9, 33])
def test_rounding_shift(width):
    rng = np.random.default_rng(width)
    bound = 1 << (width - 1)
    x = rng.integers(-bound, bound, 500) >> rng.integers(0, width, 500)
    amount = rng.integers(0, 32, 500)
    unit = RoundingShift(width)
    y = run_case(unit, {"x": x, "amount": amount}, unit.floor + unit.up)
    np.testing.assert_array_equal(y, rounding_shift(x, amount))


def test_every_bit_that_is_lost_counts_at_a_tie():
    """A negative tie is rounded down, one bit less than a tie up, whichever bit it is."""
    x, amounts = [], []
    for amount in range(1, 32):
        tie = 1 << (amount - 1)
        for lost in (0, *(1 << place for place in range(amount - 1))):
            for sign in (1, -1):
                x.append(sign * (2 * tie + tie + lost))
                amounts.append(amount)
    kept = [place for place, value in enumerate(x) if -(1 << 32) <= value < 1 << 32]
    x, amounts = np.array(x)[kept], np.array(amounts)[kept]
    assert x.size > 800
    unit = RoundingShift(33)
    y = run_case(unit, {"x": x, "amount": amounts}, unit.floor + unit.up)
    np.testing.assert_array_equal(y, rounding_shift(x, amounts))
    operands = {"x": -1280, "bias": 0, "multiplier": 1 << 30, "shift": -9, "zero": 0}
    columns = {name: np.array([value]) for name, value in operands.items()}
    columns |= {"low": np.array([-128]), "high": np.array([127])}
    assert run_case(Requantizer(), columns).tolist() == [-1]


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_bench(simulator):
    parameters = {"count": 3000, "stall": 0.3}
    simulate(
        Requantizer(),
        bench="celosia.tb.benches.bench_requantize",
        simulator=simulator,
        seed=11,
        parameters=parameters,
    )


def test_refuses_widths():
    message = "Rounding shift's width must be a positive integer, not 0"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RoundingShift(0)
