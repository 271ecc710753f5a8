"""Bench of power-on: the circuit must run or refuse flash images as the golden model does.

A flash image contains texts for the serial line, and requests to the host link, which load and
start programs and read their results.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.sim.power_on import power_on
from celosia.tb.benches.common import StreamMonitor, noise, reset, rng, start_clock
from celosia.tb.benches.power_on_images import SIZE, images
from celosia.tb.devices.linked_host import ADDR, IDENTITY, Host
from celosia.tb.machine.toolchain import PERIOD_NS

_LIMIT = 60_000  # cycles
_RUN = 70  # cycles of a run


class _Board:
    """The flash's reader, the link and the run around the circuit."""

    def __init__(self, dut: Any, contents: bytes, host: Host, random: np.random.Generator):
        self.dut, self.contents, self.host, self.random = dut, contents, host, random

    async def flash(self) -> None:
        """Return the bytes of each read."""
        dut = self.dut
        while True:
            dut.o_read__ready.value = int(self.random.random() < 0.5)
            await FallingEdge(dut.clk)
            asked = int(dut.o_read__valid.value) and int(dut.o_read__ready.value)
            payload = int(dut.o_read__payload.value)
            await RisingEdge(dut.clk)
            if not asked:
                continue
            dut.o_read__ready.value = 0
            addr, last = payload & 0xFFFFFF, payload >> 24
            for place in range(addr, addr + last + 1):
                while self.random.random() < 0.3:
                    dut.i__payload.value = noise(self.random, dut.i__payload)
                    await RisingEdge(dut.clk)
                dut.i__valid.value, dut.i__payload.value = 1, self.contents[place - ADDR]
                await self._until("i__ready")
                dut.i__valid.value = 0

    async def link(self) -> None:
        """Answer requests, after some cycles without a byte."""
        dut, frame, quiet = self.dut, b"", 0
        while True:
            await FallingEdge(dut.clk)
            valid = int(dut.request__valid.value)
            byte = int(dut.request__payload.value) & 0xFF if valid else 0
            await RisingEdge(dut.clk)
            frame, quiet = (frame + bytes([byte]), 0) if valid else (frame, quiet + 1)
            if not frame or quiet < 30:
                continue
            begun, answer = self.host.begun, self.host.ask(frame)
            frame = b""
            if self.host.begun > begun:
                dut.status.value = 1
            for each in answer:
                while self.random.random() < 0.3:
                    dut.i_answer__payload.value = noise(self.random, dut.i_answer__payload)
                    await RisingEdge(dut.clk)
                dut.i_answer__valid.value, dut.i_answer__payload.value = 1, each
                await self._until("i_answer__ready")
                dut.i_answer__valid.value = 0
            if self.host.begun > begun:
                cocotb.start_soon(self._run())

    async def _run(self) -> None:
        for _ in range(_RUN):
            await RisingEdge(self.dut.clk)
        self.dut.status.value = self.host.status

    async def _until(self, name: str) -> None:
        """Wait for the rising edge of a cycle in which a signal is 1."""
        while True:
            await FallingEdge(self.dut.clk)
            active = int(getattr(self.dut, name).value)
            await RisingEdge(self.dut.clk)
            if active:
                return


@cocotb.test(timeout_time=_LIMIT * 30 * PERIOD_NS, timeout_unit="ns")
async def images_are_carried_out(dut: Any) -> None:
    """For each flash image, the circuit sends the same text and requests as the golden model.

    The text goes to the serial line, the requests to a model of the host link. The circuit refuses
    exactly the images that the golden model refuses.
    """
    random = rng()
    await start_clock(dut, random)
    for image, status, answers in images(random):
        contents = image[: SIZE - ADDR].ljust(SIZE - ADDR, b"\0")
        golden, host = Host(status, answers), Host(status, answers)
        wanted = power_on(contents, SIZE - ADDR, IDENTITY.configuration, golden.ask, status.__int__)
        await reset(dut)
        board = _Board(dut, contents, host, random)
        tasks = [cocotb.start_soon(board.flash()), cocotb.start_soon(board.link())]
        text: list[int] = []
        taking = StreamMonitor(dut, "o", random, 0.5)
        tasks.append(
            cocotb.start_soon(
                taking.receive(1 << 20, lambda _at, byte, text=text: text.append(byte))
            )
        )
        for _ in range(_LIMIT):
            await FallingEdge(dut.clk)
            if not int(dut.active.value):
                break
            await RisingEdge(dut.clk)
        assert not int(dut.active.value), "power-on does not end"
        await RisingEdge(dut.clk)
        for task in tasks:
            task.cancel()
        assert bytes(text) == wanted.text
        assert int(dut.refused.value) == (wanted.refusal is not None)
        assert host.asked == golden.asked
        assert host.link.memory == golden.link.memory
