"""Bench of the multiplier of 32 bits: random operands, extremes among them.

Parameter: ``rounds``, an input of the unit.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.micro.isa import MULTIPLY_CYCLES
from celosia.tb.benches.common import parameters, rng, start_clock

_EXTREMES = (0, 1, 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


@cocotb.test()
async def products_are_exact(dut: Any) -> None:
    """Every product is exact, and there when ``MULTIPLY_CYCLES`` says."""
    random, rounds = rng(), parameters()["rounds"]
    await start_clock(dut)
    dut.rounds.value = int(rounds)
    for _ in range(300):
        a, b = (
            int(random.choice(_EXTREMES))
            if random.random() < 0.3
            else int(random.integers(1 << 32))
            for _ in range(2)
        )
        before = bool(random.integers(2))
        dut.b.value, dut.b_en.value, dut.start.value = b, 1, 0
        if before:
            await RisingEdge(dut.clk)
            dut.b.value = 0
        dut.a.value, dut.b_en.value, dut.start.value = a, int(not before), 1
        await RisingEdge(dut.clk)
        dut.b_en.value = 0
        dut.start.value = 0
        for _ in range(MULTIPLY_CYCLES - 1):
            await FallingEdge(dut.clk)
            assert int(dut.busy.value) == 1
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.busy.value) == 0
        a, b = ((value ^ 1 << 31) - (1 << 31) for value in (a, b))
        assert int(dut.p.value) == (a * b + rounds * (1 << 30)) % (1 << 64)
        await RisingEdge(dut.clk)
