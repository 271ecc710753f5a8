"""Benches of the SPI peripheral, and of a host link that is reached over SPI.

The SPI host's clock is independent of the clock of the circuit. Some transfers end within a byte.
"""

# Parameters:
# - half_ns: the shortest half period of the host's clock (ns)
# - wire_ns: the delay of each line (ns)
# - setup_ns: the time before each sample of the host in which the host's input must not change (ns)
# - transfers (peripheral): the number of transfers
# - stall (peripheral): the probability that the bench delays the next byte of the stream ``i``
# - timeout (link): the number of cycles without a byte after which the link drops a request
# - identity (link): the words of the answer to the request HELLO

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, Timer, ValueChange
from cocotb.utils import get_sim_time

from celosia.arch.link import ANSWER_HEADER, CRC_BYTES, Command, Status, answer, request
from celosia.tb.benches.common import ByteMonitor, StreamDriver, parameters, rng, start_clock
from celosia.tb.machine.toolchain import PERIOD_NS


class Host:
    """An SPI host in mode 0, whose clock edges are at least ``half_ns`` nanoseconds apart.

    Each line has a delay of ``wire_ns`` nanoseconds. The host's data input must not change in the
    last ``setup_ns`` nanoseconds before the host samples it.
    """

    def __init__(
        self,
        dut: Any,
        random: np.random.Generator,
        half_ns: int,
        wire_ns: int = 0,
        setup_ns: int = 0,
    ):
        self._dut, self._random, self._half = dut, random, half_ns
        self._wire, self._setup = wire_ns, setup_ns
        self._cipo, self._changed = 0, 0.0
        dut.cs_n.value, dut.sck.value, dut.copi.value = 1, 0, 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await ValueChange(self._dut.cipo)
            cocotb.start_soon(self._change(int(self._dut.cipo.value)))

    async def _change(self, level: int) -> None:
        if self._wire:
            await Timer(self._wire, "ns")
        self._cipo, self._changed = level, get_sim_time("ns")

    def _drive(self, name: str, level: int) -> None:
        async def later() -> None:
            if self._wire:
                await Timer(self._wire, "ns")
            getattr(self._dut, name).value = level

        cocotb.start_soon(later())

    def _sample(self) -> int:
        assert get_sim_time("ns") - self._changed >= self._setup, "the input changes too late"
        return self._cipo

    async def _pause(self) -> None:
        longer = int(self._random.integers(self._half)) if self._random.random() < 0.2 else 0
        await Timer(self._half + longer, "ns")

    async def transfer(self, bits: list[int]) -> list[int]:
        """Select the peripheral and send a list of bits; return a list of the bits received.

        For each bit sent, the host receives one bit from the peripheral.
        """
        self._drive("cs_n", 0)
        levels = []
        for bit in bits:
            self._drive("sck", 0)
            self._drive("copi", bit)
            await self._pause()
            self._drive("sck", 1)
            levels.append(self._sample())
            await self._pause()
        if self._random.random() < 0.7:
            self._drive("sck", 0)
            await self._pause()
        self._drive("cs_n", 1)
        await self._pause()
        self._drive("sck", 0)
        # On a shared line the clock continues.
        for level in (1, 0) * int(self._random.integers(3)):
            await self._pause()
            self._drive("sck", level)
        await self._pause()
        return levels


@cocotb.test()
async def bytes_pass_both_ways(dut: Any) -> None:
    """The peripheral receives every whole byte, and sends the bytes of its stream ``i`` in order.

    If the stream offers no byte when one must be sent, the peripheral sends a byte of 0.
    """
    settings, random = parameters(), rng()
    await start_clock(dut)
    host = Host(dut, random, settings["half_ns"], settings["wire_ns"], settings["setup_ns"])
    await Timer(int(random.integers(4 * PERIOD_NS)) + 10 * PERIOD_NS, "ns")
    await RisingEdge(dut.clk)
    # The upper bit distinguishes a byte from filling.
    data = (0x80 | random.integers(0, 128, 8 * settings["transfers"])).tolist()
    begin = 6  # bytes that wait from the start on

    async def give() -> None:
        driver = StreamDriver(dut, "i", random)
        await driver.send(data[:begin])
        for byte in data[begin:]:
            # Two bytes take at least 192 cycles.
            for _ in range(int(random.integers(400)) * (random.random() < settings["stall"])):
                await RisingEdge(dut.clk)
            await driver.send([byte])

    cocotb.start_soon(give())
    received = ByteMonitor(dut)
    wanted: list[int | None] = []
    sent: list[int] = []
    fillings = lost = 0
    for index in range(settings["transfers"]):
        count = int(random.integers(1, 5)) if index else begin - 1
        bytes_in = random.integers(0, 256, count).tolist()
        bits = [byte >> place & 1 for byte in bytes_in for place in reversed(range(8))]
        cut = int(random.integers(1, 8)) if index and random.random() < 0.3 else 0
        bits = bits[: len(bits) - cut]
        bits_back = await host.transfer(bits)
        wanted += bytes_in[: len(bits) // 8] + [None] * bool(cut)
        for place in range(0, len(bits_back), 8):
            part = bits_back[place : place + 8]
            if not part[0]:
                assert not any(part)
                fillings += 1
                continue
            expected = data[len(sent)]
            assert part == [expected >> bit & 1 for bit in range(7, -1, -1)][: len(part)]
            lost += len(part) < 8
            sent.append(expected)
        assert index or not fillings, "filling is sent while a byte waits"
    await Timer(10 * PERIOD_NS, "ns")
    assert [None if cut else byte for byte, cut in received.bytes] == wanted
    assert None in wanted
    assert len(sent) > settings["transfers"] // 2
    assert lost > 0
    assert settings["stall"] == 0 or fillings > 0


async def ask(host: Host, frame: bytes, quiet_ns: int) -> bytes:
    """Send the request ``frame`` to the host link over SPI, and return the complete answer.

    After the request, the host reads bytes until one is not 0: the first byte of the answer. If the
    first four bytes are 0, the host pauses for ``quiet_ns`` nanoseconds, so that the link can
    detect an incomplete request.
    """
    await host.transfer(_bits(frame))
    reply = b""
    for wait in (0, 0, 0, 0, quiet_ns, 0, 0):
        await Timer(wait + 1, "ns")
        reply = _bytes(await host.transfer(_bits(bytes(1)))).lstrip(b"\0")
        if reply:
            break
    # The rest in one transfer: no filling may come in between.
    reply += _bytes(await host.transfer(_bits(bytes(ANSWER_HEADER))))
    length = int.from_bytes(reply[-2:], "little")
    return reply + _bytes(await host.transfer(_bits(bytes(length + CRC_BYTES))))


def _bits(data: bytes) -> list[int]:
    return np.unpackbits(np.frombuffer(data, np.uint8)).tolist()


def _bytes(bits: list[int]) -> bytes:
    return np.packbits(np.array(bits, np.uint8)).tobytes()


@cocotb.test()
async def a_link_answers(dut: Any) -> None:
    """A host link over SPI answers requests, and reports CORRUPT for damaged ones.

    A request in which no byte arrives for ``timeout`` cycles is reported as CORRUPT, too.
    """
    settings, random = parameters(), rng()
    await start_clock(dut)
    host = Host(dut, random, settings["half_ns"], settings["wire_ns"], settings["setup_ns"])
    await Timer(20 * PERIOD_NS, "ns")
    words = b"".join(word.to_bytes(4, "little") for word in settings["identity"])
    data = random.bytes(20)
    write = request(Command.WRITE_MEMORY, 2, len(data), 3, data)
    damaged = bytearray(write)
    damaged[20] ^= 4
    read = request(Command.READ_MEMORY, 3, len(data), 3)
    cases = (
        (request(Command.HELLO, 1, len(words), 0), (Status.OK, 1, words)),
        (write, (Status.OK, 2)),
        (read, (Status.OK, 3, data)),
        (bytes(damaged), None),
        (read, (Status.OK, 3, data)),
    )
    for frame, wanted in cases:
        reply = await ask(host, frame, settings["timeout"] * PERIOD_NS * 2)
        if wanted is None:
            assert reply[1] == Status.CORRUPT
        else:
            assert reply == answer(*wanted)
    # A host stops within a byte; the next host's request continues that byte.
    await host.transfer(_bits(request(Command.WRITE_MEMORY, 4, 8, 3, bytes(8)))[:100])
    assert (await ask(host, read, settings["timeout"] * PERIOD_NS * 2))[1] == Status.CORRUPT
    assert await ask(host, read, 0) == answer(Status.OK, 3, data)
