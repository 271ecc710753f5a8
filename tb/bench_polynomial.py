"""Bench of the 16-bit functions: operands against the golden model, with stalls.

Parameters: ``function`` and ``lanes`` of the unit; ``all`` takes every one of the 65,536 operands,
otherwise random ones.
"""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data

from arch.functions import WIDE_FUNCTIONS
from arch.polynomial import wide_polynomial
from sim.polynomial import evaluate
from tb.bench import StreamDriver, StreamMonitor, pack, parameters, rng, start_clock, unpack


@cocotb.test()
async def test_function(dut):
    """Every payload's lanes are what the golden model says."""
    given, random = parameters(), rng()
    lanes = given["lanes"]
    layout = data.ArrayLayout(signed(16), lanes)
    operands = random.permutation(np.arange(-(1 << 15), 1 << 15))
    x = np.resize(operands, (-(-len(operands) // lanes), lanes))
    if not given["all"]:
        x = x[:2000]
    y = evaluate(wide_polynomial(WIDE_FUNCTIONS[given["function"]]), x)
    await start_clock(dut)
    payloads = [pack(layout, row) for row in x.tolist()]
    cocotb.start_soon(StreamDriver(dut, "i", random, stall=0.1).send(payloads))
    got = await StreamMonitor(dut, "o", random, stall=0.1).receive(len(payloads))
    for bits, wanted in zip(got, y.tolist(), strict=True):
        assert unpack(layout, bits) == wanted
