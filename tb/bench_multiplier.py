"""Bench of the multiplier: random operands, extremes among them, random enables and clears.

Parameters: ``width`` and ``gating`` of the unit.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from tb.bench import parameters, rng, start_clock


@cocotb.test()
async def products_are_exact(dut: Any) -> None:
    """Every product is that of the operands taken last, two cycles later, or 0 after a clear."""
    given, random = parameters(), rng()
    width, gating = given["width"], given["gating"]
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    mask, wide = (1 << width) - 1, (1 << (2 * width)) - 1
    await start_clock(dut)
    held: tuple[int, int] | None = None
    product: int | None = None
    for _ in range(2000):
        a, b = (
            int(v) for v in random.choice([low, high, 0, -1, *random.integers(low, high, 4)], 2)
        )
        en = clear = 0
        if gating:
            en, clear = int(random.random() < 0.7), int(random.random() < 0.3)
            dut.en.value = en
            dut.clear.value = clear
        dut.a.value = a & mask
        dut.b.value = b & mask
        await RisingEdge(dut.clk)
        product = 0 if clear else None if held is None else held[0] * held[1]
        if en or not gating:
            held = (a, b)
        await FallingEdge(dut.clk)
        if product is not None:
            assert int(dut.p.value) == product & wide
