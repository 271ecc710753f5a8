"""Bench of power-on: images of a flash, good and bad, against the golden model."""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.link import ANSWER_HEADER, Command, request
from celosia.arch.power_on import Op, record, seal
from celosia.sim.power_on import power_on
from celosia.tb.benches.common import PERIOD_NS, StreamMonitor, noise, rng, start_clock
from celosia.tb.devices.linked_host import ADDR, CONFIG, IDENTITY, Host
from celosia.tb.verify.mutation.devices import SIZE

_LIMIT = 60_000  # cycles
_CLASSES = 280
_RUN = 70  # cycles of a run


def _asked(command: Command, tag: int, length: int, addr: int, data: bytes = b"") -> bytes:
    return record(Op.REQUEST, request(command, tag, length, addr, data)[1:])


def _good(random: np.random.Generator, classes: int = 21) -> bytes:
    """Return the records of an image whose scores are random."""
    scores = random.integers(-(1 << 15), 1 << 15, 21).astype("<i2")
    scores[random.integers(21, size=2)] = random.integers(1 << 15)
    data = scores.tobytes()
    choices = b"".join(
        request(Command.WRITE_MEMORY, 9, 3, 40 + each % 8, bytes([each % 255 + 1] * 3)).ljust(
            16, b"\0"
        )
        for each in range(classes)
    )
    names = b"".join(f"name {each}".encode().ljust(16, b"\0") for each in range(classes))
    return (
        _asked(Command.WRITE_MEMORY, 1, len(data), 7, data)
        + record(Op.TEXT, b"ok ")
        + _asked(Command.START, 2, 0, 0)
        + record(Op.WAIT)
        + _asked(Command.READ_MEMORY, 3, len(data), 7)
        + record(Op.LABEL, names)
        + record(Op.CHOICE, choices)
        + record(Op.TEXT, bytes(random.integers(32, 127, 300).astype(np.uint8)))
    )


def _images(random: np.random.Generator) -> list[tuple[bytes, int, Any]]:
    """Return images, the STATUS of their runs, and what becomes of answers."""
    good = _good(random)
    image = seal(CONFIG, good + record(Op.END))
    flipped = bytearray(image)
    flipped[int(random.integers(12, len(image)))] ^= 1 << int(random.integers(8))

    def other(at: int, found: bytes) -> bytes:
        """Return an error for the fourth request."""
        return found[:1] + bytes([error]) + found[2:] if at == 3 else found

    def odd(at: int, found: bytes) -> bytes:
        """Return a byte more than numbers have, and the least of them first."""
        start = 1 + ANSWER_HEADER
        if at != 2:
            return found
        data = b"\x00\x80" + found[start + 2 : -2] + b"\x7f"
        return found[: start - 2] + len(data).to_bytes(2, "little") + data + found[-2:]

    scores = random.integers(-(1 << 15), 1 << 14, _CLASSES).astype("<i2")
    scores[int(random.integers(_CLASSES - 20, _CLASSES))] = 1 << 14
    error = 1 << int(random.integers(3))

    def many(at: int, found: bytes) -> bytes:
        """Return more scores than were asked for, of which a late one is the largest."""
        if at != 2:
            return found
        data = scores.tobytes()
        start = 1 + ANSWER_HEADER
        return found[: start - 2] + len(data).to_bytes(2, "little") + data + found[-2:]

    return [
        (seal(CONFIG, _good(random, _CLASSES) + record(Op.END)), 0, many),
        (image, 0, None),
        (image, 0, odd),
        (image, 2, None),
        (image, 0, other),
        (bytes(flipped), 0, None),
        (image[:4] + bytes([image[4] ^ 16]) + image[5:], 0, None),
        (b"CEL\x02" + image[4:], 0, None),
        (b"\xff" * 16, 0, None),
        (seal(CONFIG, b""), 0, None),
        (image[:8] + (SIZE - ADDR - 15).to_bytes(4, "little") + image[12:], 0, None),
        (image[:8] + b"\x00\x00\x00\x01" + image[12:], 0, None),
        (seal(CONFIG, good), 0, None),
        (seal(CONFIG, good[:-3]), 0, None),
        (
            seal(CONFIG, record(Op.TEXT, b"a") + bytes([int(random.integers(6, 256)), 0, 0])),
            0,
            None,
        ),
        (seal(CONFIG, _asked(Command.WRITE_MEMORY, 1, 2, 63, b"no") + record(Op.END)), 0, None),
        (seal(CONFIG, _asked(Command.READ_MEMORY, 3, 2, 7) + record(Op.CHOICE, b"")), 0, None),
        (seal(CONFIG, _asked(Command.WRITE_MEMORY, 1, 2, 0, b"ab")[:-3]), 0, None),
    ]


class _Board:
    """The flash's reader, the link and the run around the circuit."""

    def __init__(self, dut: Any, contents: bytes, host: Host, random: np.random.Generator):
        self.dut, self.contents, self.host, self.random = dut, contents, host, random

    async def flash(self) -> None:
        """Bring the bytes of each read."""
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
        """Answer what comes, once nothing more comes for some cycles."""
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
            taken = int(getattr(self.dut, name).value)
            await RisingEdge(self.dut.clk)
            if taken:
                return


@cocotb.test(timeout_time=_LIMIT * 20 * PERIOD_NS, timeout_unit="ns")
async def images_are_carried_out(dut: Any) -> None:
    """Text, requests and the refusal of each image are the golden model's."""
    random = rng()
    for image, status, answers in _images(random):
        contents = image[: SIZE - ADDR].ljust(SIZE - ADDR, b"\0")
        golden, host = Host(status, answers), Host(status, answers)
        wanted = power_on(contents, SIZE - ADDR, IDENTITY.configuration, golden.ask, status.__int__)
        await start_clock(dut, random)
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
