"""Bench of the pair of multipliers: random operands, extremes among them, held at random."""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.tb.benches.common import rng, start_clock


@cocotb.test()
async def products_are_exact(dut: Any) -> None:
    """Every product is that of the operands taken last, two cycles later."""
    random = rng()
    await start_clock(dut)
    held: dict[str, int] = {}
    for _ in range(2000):
        operands = {
            f"{side}_{number}": int(
                random.choice([-128, 127, 0, -1, *random.integers(-128, 128, 4)])
            )
            for side in "ab"
            for number in range(2)
        }
        for name, value in operands.items():
            getattr(dut, name).value = value & 0xFF
        enabled = {side: bool(random.random() < 0.6) for side in "ab"}
        dut.a_en.value, dut.b_en.value = int(enabled["a"]), int(enabled["b"])
        await RisingEdge(dut.clk)
        products = [
            held[f"a_{number}"] * held[f"b_{number}"] if len(held) == 4 else None
            for number in range(2)
        ]
        held |= {name: value for name, value in operands.items() if enabled[name[0]]}
        await FallingEdge(dut.clk)
        for number, product in enumerate(products):
            if product is not None:
                assert int(getattr(dut, f"p_{number}").value) == product & 0xFFFF
