"""Bench of the reciprocal and the reciprocal square root, with random operands and pauses.

Parameters: ``width`` of the operand (bits); ``root``, 1 for the reciprocal square root and 0 for
the reciprocal; ``latency`` of the unit (cycles).
"""

from dataclasses import replace

import cocotb
import numpy as np
from amaranth.hdl import signed
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.polynomial import (
    FRACTION_WIDTH,
    GUARD_WIDTH,
    reciprocal_polynomial,
    rsqrt_polynomial,
)
from celosia.hdl.arithmetic.reciprocal import EXPONENT_WIDTH
from celosia.sim.polynomial import evaluate
from celosia.sim.reciprocal import normalize, reciprocal, rsqrt
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import unpack


def near_steps(random: np.random.Generator, width: int, *, root: bool) -> list[int]:
    """Return random operands whose results are sensitive to the smallest error.

    The unit rounds the sum of a polynomial. With each of these operands, a sum too large by 1, or a
    sum too small by 1, gives a wrong result. ``width`` is in bits. ``root`` selects the reciprocal
    square root.
    """
    x = random.integers(0, 1 << width, 20_000, np.uint64)
    polynomial = rsqrt_polynomial() if root else reciprocal_polynomial()
    fraction, exponent = normalize(x)
    operand = fraction | (exponent & 1) << FRACTION_WIDTH if root else fraction
    guard = evaluate(replace(polynomial, guard_width=0), operand) % (1 << GUARD_WIDTH)
    return [int(operand) for operand in x[(guard == 0) | (guard == (1 << GUARD_WIDTH) - 1)]]


@cocotb.test()
async def test_results(dut):
    """Every result equals the golden model's result, and appears at the right time.

    A result must appear ``latency`` cycles after its operand, not counting cycles in which ``en``
    is 0.
    """
    settings, random = parameters(), rng()
    width = settings["width"]
    x = [
        int.from_bytes(random.bytes(8)) >> int(random.integers(64 - width, 65)) for _ in range(2000)
    ]
    x[:2] = [0, (1 << width) - 1]
    x += near_steps(random, width, root=settings["root"])
    model = rsqrt if settings["root"] else reciprocal
    mantissa, exponent = model(np.array(x, dtype=np.uint64))
    wanted = list(zip(mantissa.tolist(), exponent.tolist(), strict=True))
    await start_clock(dut)
    flags, position, received = [], 0, 0
    while received < len(x):
        en = int(random.random() < 0.8)
        valid = int(position < len(x) and random.random() < 0.8)
        dut.en.value = en
        dut.valid_i.value = valid
        dut.x.value = x[position] if valid else 0
        await FallingEdge(dut.clk)
        # A result holds until the next enabled edge, after any number of disabled ones.
        expected = flags[-settings["latency"]] if len(flags) >= settings["latency"] else 0
        assert int(dut.valid_o.value) == expected
        if expected:
            power = unpack(signed(EXPONENT_WIDTH), int(dut.exponent.value))
            assert (int(dut.mantissa.value), power) == wanted[received]
        await RisingEdge(dut.clk)
        if en:
            received += expected
            position += valid
            flags.append(valid)
