"""The reciprocal and the reciprocal square root: circuit, golden model and float64."""

import numpy as np
import pytest

from celosia.arch.polynomial import FRACTION_WIDTH, fit
from celosia.hdl.arithmetic.reciprocal import Normalizer, Reciprocal, ReciprocalSqrt
from celosia.sim.reciprocal import reciprocal, rsqrt
from celosia.tb.benches.simulate import simulate
from tests.support.simulation import run_bench

MODELS = {Reciprocal: reciprocal, ReciprocalSqrt: rsqrt}


def run_case(unit, operands, rng):
    """Return valid results of a unit fed with random gaps and random pauses of the pipeline."""
    results = []

    async def bench(ctx):
        pending = list(operands)
        due = []
        while len(results) < len(operands):
            en, valid = rng.random() < 0.8, bool(pending) and rng.random() < 0.8
            ctx.set(unit.en, en)
            ctx.set(unit.valid_i, valid)
            ctx.set(unit.x, int(pending[0]) if valid else int(rng.integers(2)))
            if en:
                due.append(valid)
                if valid:
                    pending.pop(0)
            await ctx.tick()
            if en and len(due) >= unit.latency:
                assert ctx.get(unit.valid_o) == due[-unit.latency]
                if ctx.get(unit.valid_o):
                    results.append((ctx.get(unit.mantissa), ctx.get(unit.exponent)))

    run_bench(unit, bench)
    return results


def operands(width, rng, count=150):
    """Return operands of every length of a width, with 0 and the largest one."""
    lengths = rng.integers(1, width + 1, count)
    random = [int.from_bytes(rng.bytes(8)) for _ in lengths]
    some = [value >> (64 - int(length)) for value, length in zip(random, lengths, strict=True)]
    return np.array([0, 1, (1 << width) - 1, 1 << (width - 1), *some], dtype=np.uint64)


@pytest.mark.parametrize("width", [1, 2, 3, 17, 23, 24, 41, 64])
@pytest.mark.parametrize("unit", [Reciprocal, ReciprocalSqrt])
def test_circuit_equals_model(unit, width):
    rng = np.random.default_rng(width)
    x = operands(width, rng)
    mantissa, exponent = MODELS[unit](x)
    got = run_case(unit(width), x, rng)
    assert got == list(zip(mantissa.tolist(), exponent.tolist(), strict=True))


@pytest.mark.parametrize(
    ("model", "exact"), [(reciprocal, lambda x: 1 / x), (rsqrt, lambda x: x**-0.5)]
)
def test_model_is_close_to_float64(model, exact):
    rng = np.random.default_rng(1)
    fractions = np.arange(1 << FRACTION_WIDTH, 2 << FRACTION_WIDTH, 5)
    for x in (fractions, 2 * fractions, rng.integers(1, 1 << 62, 100_000)):
        mantissa, exponent = model(x)
        relative = mantissa * 2.0**exponent / exact(x.astype(np.float64)) - 1
        assert np.abs(relative).max() <= 1.13 * 2.0**-17
        assert mantissa.min() >= 1 << 16


def test_powers_are_exact_and_zero_gives_zero():
    powers = np.uint64(1) << np.arange(64, dtype=np.uint64)
    mantissa, exponent = reciprocal(powers)
    assert (mantissa * 2.0**exponent == 1 / powers).all()
    mantissa, exponent = rsqrt(powers[::2])
    assert (mantissa * 2.0**exponent == powers[::2] ** -0.5).all()
    for model in (reciprocal, rsqrt):
        assert [int(part[0]) for part in model(np.array([0]))] == [0, 0]


@pytest.mark.parametrize("width", [0, 65])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match=f"^Operand width must be from 1 to 64 bits, not {width}$"):
        Normalizer(width)


@pytest.mark.parametrize("segments", [0, 1, 12, 512])
def test_segments_are_checked(segments):
    message = f"^Polynomial segments must be a power of two from 2 to 256, not {segments}$"
    with pytest.raises(ValueError, match=message):
        fit(lambda x: x, x_width=8, segments=segments, signed=False)


@pytest.mark.parametrize(
    ("unit", "simulator", "width"),
    [
        (ReciprocalSqrt, "verilator", 53),
        (ReciprocalSqrt, "icarus", 53),
        (Reciprocal, "icarus", 19),
    ],
)
def test_bench(unit, simulator, width):
    component = unit(width)
    simulate(
        component,
        bench="celosia.tb.benches.bench_reciprocal",
        simulator=simulator,
        seed=9,
        parameters={
            "width": width,
            "root": unit is ReciprocalSqrt,
            "latency": component.latency,
        },
    )
