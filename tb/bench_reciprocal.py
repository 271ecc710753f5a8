"""Bench of the reciprocal and the reciprocal square root, with gaps and pauses.

Parameters: ``width`` of the operand, ``root`` (1 for the square root), ``latency`` of the unit.
"""

import cocotb
import numpy as np
from amaranth.hdl import signed
from cocotb.triggers import FallingEdge, RisingEdge

from hdl.arithmetic.reciprocal import EXPONENT_WIDTH
from sim.reciprocal import reciprocal, rsqrt
from tb.bench import parameters, rng, start_clock, unpack


@cocotb.test()
async def test_results(dut):
    """Results come in order, as late as promised, and equal the golden model's."""
    given, random = parameters(), rng()
    width = given["width"]
    x = [
        int.from_bytes(random.bytes(8)) >> int(random.integers(64 - width, 65)) for _ in range(3000)
    ]
    x[:2] = [0, (1 << width) - 1]
    model = rsqrt if given["root"] else reciprocal
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
        # A result stays until the next enabled edge, however many others there are.
        expected = flags[-given["latency"]] if len(flags) >= given["latency"] else 0
        assert int(dut.valid_o.value) == expected
        if expected:
            power = unpack(signed(EXPONENT_WIDTH), int(dut.exponent.value))
            assert (int(dut.mantissa.value), power) == wanted[received]
        await RisingEdge(dut.clk)
        if en:
            received += expected
            position += valid
            flags.append(valid)
