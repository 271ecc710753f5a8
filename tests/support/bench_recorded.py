"""Bench that compares outputs with a record of them, from the first cycle on.

Parameters: ``inputs`` and ``outputs``, for each cycle the values of ports by their names.
"""

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.tb.benches.common import parameters, start_clock


@cocotb.test()
async def test_outputs(dut):
    """Every output has its value in every cycle."""
    recording = parameters()
    await start_clock(dut)
    for cycle, (inputs, outputs) in enumerate(
        zip(recording["inputs"], recording["outputs"], strict=True)
    ):
        for name, value in inputs.items():
            getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        values = {name: int(getattr(dut, name).value) for name in outputs}
        assert values == outputs, f"cycle {cycle}"
        await RisingEdge(dut.clk)
