"""Bench of the adder in ``tests/test_tb_toolchain.py``, which shows that benches can fail.

Parameters: ``count`` additions and the probability ``stall``.
"""

import cocotb
from amaranth.hdl import signed
from amaranth.lib import data

from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack

LAYOUT = data.StructLayout({"a": signed(5), "b": signed(5)})


@cocotb.test()
async def test_sums(dut):
    """Every sum is right, in order, whatever the stalls."""
    settings, random = parameters(), rng()
    await start_clock(dut)
    driver = StreamDriver(dut, "i", random, settings["stall"])
    monitor = StreamMonitor(dut, "o", random, settings["stall"])
    pairs = random.integers(-16, 16, (settings["count"], 2)).tolist()
    cocotb.start_soon(driver.send([pack(LAYOUT, {"a": a, "b": b}) for a, b in pairs]))
    sums = [unpack(signed(6), bits) for bits in await monitor.receive(settings["count"])]
    assert sums == [a + b for a, b in pairs]
