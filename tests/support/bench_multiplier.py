"""Bench of the multiplier: random operands, extremes among them, random enables and clears.

Parameters: ``width``, ``b_width``, ``gating`` and ``stalling`` of the unit.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.tb.benches.common import parameters, rng, start_clock


@cocotb.test()
async def products_are_exact(dut: Any) -> None:
    """Every product is that of the operands taken last, two cycles later, or 0 after a clear."""
    settings, random = parameters(), rng()
    widths = settings["width"], settings["b_width"]
    gating, stalling = settings["gating"], settings["stalling"]
    wide = (1 << sum(widths)) - 1
    await start_clock(dut)
    held: list[int] | None = None
    product: int | None = None
    for _ in range(2000):
        operands = []
        for port, width in zip((dut.a, dut.b), widths, strict=True):
            low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
            operand = random.choice([low, high, 0, -1, *random.integers(low, high, 4)])
            operands.append(int(operand))
            port.value = int(operand) & ((1 << width) - 1)
        en, clear = 1, 0
        if gating or stalling:
            en = int(random.random() < 0.7)
            dut.en.value = en
        if gating:
            clear = int(random.random() < 0.3)
            dut.clear.value = clear
        await RisingEdge(dut.clk)
        if en or not stalling:
            product = 0 if clear else None if held is None else held[0] * held[1]
        if en:
            held = operands
        await FallingEdge(dut.clk)
        if product is not None:
            assert int(dut.p.value) == product & wide
