"""Bench of the tables of activation functions: it writes all tables, then reads their entries.

Parameters of the unit: ``lanes``, the number of entries read in parallel; ``slots``, the number of
tables.
"""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.functions import FUNCTIONS, int8_table
from celosia.sim.table import lookup
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack


@cocotb.test()
async def test_tables(dut):
    """Every lane outputs the table entry for the lane's input ``index``.

    The unit's input ``slot`` selects the table. A table has 256 entries, for the indices -128 to
    127.
    """
    settings, random = parameters(), rng()
    lanes, slots = settings["lanes"], settings["slots"]
    layout = data.ArrayLayout(signed(8), lanes)
    names = list(FUNCTIONS)
    tables = [int8_table(FUNCTIONS[names[s % len(names)]], 0.04, s, 0.03, -s) for s in range(slots)]
    await start_clock(dut)

    def rest() -> None:
        """Write nothing, anywhere."""
        dut.write__en.value = 0
        dut.write__slot.value = int(random.integers(slots))
        dut.write__index.value = int(random.integers(256))
        dut.write__value.value = int(random.integers(256))

    for slot in range(slots):
        for entry in random.permutation(256).tolist():
            while random.random() < 0.2:
                rest()
                await RisingEdge(dut.clk)
            dut.write__en.value = 1
            dut.write__slot.value = slot
            dut.write__index.value = entry
            dut.write__value.value = int(tables[slot][entry]) & 0xFF
            await RisingEdge(dut.clk)
    asked = wanted = None
    for step in range(512):
        rest()
        x = random.integers(-128, 128, lanes) if step >= 256 else np.full(lanes, step - 128)
        slot, en = int(random.integers(slots)), random.random() < 0.8
        dut.en.value = int(en)
        dut.slot.value = slot
        dut.index.value = pack(layout, x.tolist())
        await RisingEdge(dut.clk)
        if en:
            asked, wanted = lookup(tables[slot], x).tolist(), asked
        if wanted is not None:
            await FallingEdge(dut.clk)
            assert unpack(layout, int(dut.value.value)) == wanted
            # A result stays through an odd number of cycles as well as through an even one.
            dut.en.value = 0
            for _ in range(int(random.integers(1, 3))):
                await RisingEdge(dut.clk)
