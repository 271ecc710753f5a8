"""Bench of a machine on a bus whose memory stops answering: FORGET, then an exact run.

Parameters: ``config``, every field of the configuration; ``bus``; ``rows`` of one word that the
program loads.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.registers import (
    CONTROL_FORGET,
    CONTROL_START,
    REGISTER_MAP,
    STATUS_BUSY,
    Cause,
    cause_of,
)
from celosia.tb.benches.common import parameters, start_clock

LIMIT = 3000
"""Cycles until STATUS is not busy."""


class Memory:
    """A memory on the bus that reads as 0, and answers nothing more while it is ``silent``.

    The first burst that it is asked for in silence is lost, on AXI4 the others are not taken.
    """

    def __init__(self, dut: Any, bus: str):
        self.dut, self.bus = dut, bus
        self.silent = False
        self.asked = 0
        self._left = 0
        self._lost = False

    async def serve(self) -> None:
        """Answer for ever, a word a cycle."""
        while True:
            await FallingEdge(self.dut.clk)
            if self.bus == "axi4":
                self._axi4()
            else:
                self._wishbone()
            await RisingEdge(self.dut.clk)

    def _wishbone(self) -> None:
        dut = self.dut
        strobe = bool(dut.wbm_cyc_o.value) and bool(dut.wbm_stb_o.value)
        self.asked += strobe
        dut.wbm_ack_i.value = int(strobe and not self.silent)

    def _axi4(self) -> None:
        dut = self.dut
        if int(dut.m_axi_rvalid.value) and int(dut.m_axi_rready.value):
            self._left -= 1
        accepts = bool(int(dut.m_axi_arvalid.value)) and not self._left and not self._lost
        dut.m_axi_arready.value = int(accepts)
        if accepts:
            self.asked += 1
            self._left = int(dut.m_axi_arlen.value) + 1
        self._lost = self.silent and (self._lost or accepts)
        if self.silent:
            self._left = 0
        dut.m_axi_rvalid.value = int(self._left > 0)
        dut.m_axi_rlast.value = int(self._left == 1)


class Host:
    """The host's side."""

    def __init__(self, dut: Any):
        self.dut = dut

    async def write(self, name: str, value: int) -> None:
        """Write a register."""
        await FallingEdge(self.dut.clk)
        self.dut.host__addr.value = REGISTER_MAP[name].addr
        self.dut.host__write_data.value = value
        self.dut.host__write_en.value = 1
        await FallingEdge(self.dut.clk)
        self.dut.host__write_en.value = 0

    async def read(self, name: str) -> int:
        """Read a register."""
        await FallingEdge(self.dut.clk)
        self.dut.host__addr.value = REGISTER_MAP[name].addr
        await FallingEdge(self.dut.clk)
        return int(self.dut.host__read_data.value)

    async def ends(self) -> int:
        """Return STATUS when it is not busy."""
        for _ in range(LIMIT):
            status = await self.read("STATUS")
            if not status & STATUS_BUSY:
                return status
        raise AssertionError("STATUS stays busy")


@cocotb.test()
async def a_silent_memory_is_left_and_the_next_run_is_exact(dut: Any) -> None:
    """The memory falls silent in a burst; behind FORGET the run of before is exact."""
    settings = parameters()
    config = Config.of(**settings["config"])
    await start_clock(dut)
    host, memory = Host(dut), Memory(dut, settings["bus"])
    cocotb.start_soon(memory.serve())
    size, rows = config.mem_bytes, settings["rows"]
    operands = {"m": rows, "row_bytes": size, "dram_stride": size, "sp_stride": size}
    words = pack([Instruction(Opcode.LOAD, operands), Instruction(Opcode.HALT)])
    await host.ends()
    await host.write("PROGRAM_ADDR", 0)
    for word in words:
        await host.write("PROGRAM_DATA", word)
    counts = []
    for silent in (False, True, False):
        memory.silent = silent
        before = memory.asked
        await host.write("CONTROL", CONTROL_START)
        if silent:
            for _ in range(200):
                await RisingEdge(dut.clk)
            assert memory.asked > before
            assert await host.read("STATUS") & STATUS_BUSY
            await host.write("CONTROL", CONTROL_FORGET)
            await RisingEdge(dut.clk)
            asked = memory.asked
            memory.silent = False
            await host.ends()
            assert memory.asked == asked, "a request of before FORGET"
            line = "m_axi_arvalid" if settings["bus"] == "axi4" else "wbm_cyc_o"
            assert not int(getattr(dut, line).value)
            continue
        assert cause_of(await host.ends()) == Cause.NONE
        counts.append([await host.read(f"{name}_LOW") for name in ("CYCLES", "LOADED")])
    assert counts[0] == counts[1], counts
    assert counts[0][1] == rows
