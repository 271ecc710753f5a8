"""Bench of whole inferences by a host and a memory on buses, both of them packages of others.

Parameters: ``config``, every field of the configuration; ``control``, the host's bus; ``model`` of
the memory (a name of ``celosia.tb.benches.slow_memory``); ``stall`` of every channel; ``words``,
``image``, and of each run ``pc``, ``registers``, ``writes``, ``addr`` and the ``output`` that is
expected, bytes as hexadecimal.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from cocotbext.wishbone.driver import WBOp, WishboneMaster

from celosia.arch.config import Config
from celosia.arch.registers import (
    CONTROL_START,
    IDENTITY,
    REGISTER_MAP,
    STATUS_BUSY,
    Cause,
    cause_of,
)
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.benches.slow_memory import MODELS
from tests.support.bench_control import WISHBONE_SIGNALS

SIZE = 1 << 14
"""External memory (bytes)."""
LIMIT = 4000
"""Reads of STATUS until a run is over."""


class AxiLiteHost:
    """cocotbext-axi's host on AXI4-Lite."""

    def __init__(self, dut: Any, random: np.random.Generator, stall: float):
        self._master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        writes, reads = self._master.write_if, self._master.read_if
        channels = (writes.aw_channel, writes.w_channel, writes.b_channel)
        for channel in (*channels, reads.ar_channel, reads.r_channel):
            channel.set_pause_generator(bool(random.random() < stall) for _ in iter(int, 1))

    async def write(self, name: str, value: int) -> None:
        """Write a register."""
        data = value.to_bytes(4, "little")
        answer = await self._master.write(4 * REGISTER_MAP[name].addr, data)
        assert answer.resp == AxiResp.OKAY

    async def read(self, name: str) -> int:
        """Return a register."""
        answer = await self._master.read(4 * REGISTER_MAP[name].addr, 4)
        return int.from_bytes(answer.data, "little")


class WishboneHost:
    """cocotbext-wishbone's host, which raises its strobe late with the probability ``stall``."""

    def __init__(self, dut: Any, random: np.random.Generator, stall: float):
        self._master = WishboneMaster(
            dut, "wbs", dut.clk, width=32, timeout=20, signals_dict=WISHBONE_SIGNALS
        )
        self._random, self._stall = random, stall

    async def write(self, name: str, value: int) -> None:
        """Write a register."""
        await self._access(name, value)

    async def read(self, name: str) -> int:
        """Return a register."""
        return await self._access(name, None)

    async def _access(self, name: str, value: int | None) -> int:
        idle = int(self._random.random() < self._stall)
        operation = WBOp(adr=4 * REGISTER_MAP[name].addr, dat=value, idle=idle, sel=15)
        [answer] = await self._master.send_cycle([operation])
        assert answer.ack == 1
        return int(answer.datrd)


HOSTS = {"axi4-lite": AxiLiteHost, "wishbone": WishboneHost}
"""The host on each bus."""


@cocotb.test()
async def test_inferences_are_exact_whatever_the_buses_do(dut: Any) -> None:
    """Pauses everywhere; a run that memory fails in says so, and the next one is exact again."""
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut)
    # Behind the reset: Icarus spreads no value that WishboneMaster sets at time 0.
    host = HOSTS[settings["control"]](dut, random, settings["stall"])
    memory = MODELS[settings["model"]](dut, config, random, settings["stall"], SIZE, SIZE)

    async def serve() -> None:
        while True:
            memory.drive()
            await FallingEdge(dut.clk)
            memory.sample()
            await RisingEdge(dut.clk)

    async def run(pc: int) -> Cause:
        await host.write("PC", pc)
        await host.write("CONTROL", CONTROL_START)
        for _ in range(LIMIT):
            status = await host.read("STATUS")
            if not status & STATUS_BUSY:
                return cause_of(status)
        raise AssertionError("STATUS stays busy")

    cocotb.start_soon(serve())
    image = np.frombuffer(bytes.fromhex(settings["image"]), np.uint8)
    memory.bytes[: image.size] = image
    assert await host.read("ID") == IDENTITY
    await host.write("PROGRAM_ADDR", 0)
    for word in settings["words"]:
        await host.write("PROGRAM_DATA", word)
    for number, inference in enumerate(settings["runs"]):
        for addr, text in inference["writes"]:
            data = np.frombuffer(bytes.fromhex(text), np.uint8)
            memory.bytes[addr : addr + data.size] = data
        for name, value in inference["registers"].items():
            await host.write(name, value)
        if number == 1:
            memory.broken = 0
            assert await run(inference["pc"]) == Cause.MEMORY
            assert int(dut.mem_error.value) == 1
            memory.broken = SIZE
        assert await run(inference["pc"]) == Cause.NONE
        expected = bytes.fromhex(inference["output"])
        output = memory.bytes[inference["addr"] : inference["addr"] + len(expected)].tobytes()
        assert output == expected, f"run {number}"
    assert memory.stored > 0
