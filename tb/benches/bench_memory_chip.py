"""Bench of the SDRAM and PSRAM controllers: random bursts to a model of the chip.

The model checks the chip's timing rules. Parameters: ``device``, the kind of chip (``sdram`` or
``psram``); ``config``, all fields of the configuration of a machine that uses the controller.
"""

from collections import deque
from math import floor
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, Timer

from celosia.arch.config import Config
from celosia.arch.sdram import URGENT
from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.devices.psram import PsramModel
from celosia.tb.devices.sdram import SdramModel, untouched
from celosia.tb.machine.toolchain import PERIOD_NS
from celosia.tb.verify.mutation.devices import CLOCK, PSRAM_CLOCK, PSRAM_SHEET, SDRAM_SHEET

_SDRAM = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o", "dq_oe")
_PSRAM = ("ck", "ck_n", "cs_n", "reset_n", "dq_o", "dq_oe", "rwds_o", "rwds_oe")
_LIMIT = 60_000  # cycles
_PRECHARGE = 2  # of the model's counts
_MOST = (625, 625, 170, 160, 625)
"""Most cycles of five measurements: reading and writing 256 words in order, reading and writing 12
words in rows of one bank, and (SDRAM) writing 256 words in alternating rows of two banks."""


def _values(dut: Any, names: tuple[str, ...]) -> dict[str, int]:
    return {name: int(getattr(dut, f"pins__{name}").value) for name in names}


async def _sdram(dut: Any, model: SdramModel, random: np.random.Generator) -> None:
    width = len(dut.pins__dq_i)
    while True:
        await FallingEdge(dut.clk)
        answer = model.step(_values(dut, _SDRAM))
        dut.pins__dq_i.value = int(random.integers(1 << width)) if answer is None else answer


async def _psram(dut: Any, model: PsramModel) -> None:
    while True:
        for _ in range(2):
            await Timer(PERIOD_NS / 4, unit="ns")
            dq, rwds = model.step(_values(dut, _PSRAM))
            dut.pins__dq_i.value, dut.pins__rwds_i.value = dq, rwds
            assert not int(dut.failed.value), "data came without a strobe"
            await Timer(PERIOD_NS / 4, unit="ns")


class _Port:
    """Bursts at the port, each requested after the previous one of its direction."""

    def __init__(self, dut: Any, config: Config, random: np.random.Generator):
        self.dut, self.config, self.random = dut, config, random
        self.memory: dict[int, int] = {}
        self.size = config.mem_bytes
        self.accepted = 0  # words accepted for writing
        self.due: deque[int] = deque()  # words up to each unwritten burst's end
        cocotb.start_soon(self._watch())

    def bursts(self, count: int, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """Return random bursts in an address range: first byte, and number of words."""
        drawn = []
        for _ in range(count):
            words = int(self.random.choice([1, 1, 2, 5, most]))
            places = (high - low) // self.size - words
            drawn.append((low + int(self.random.integers(places + 1)) * self.size, words))
        return drawn

    def _requests(self, bursts: list[tuple[int, int]]) -> list[int]:
        return [addr | words - 1 << self.config.memory.addr_width for addr, words in bursts]

    async def read(self, bursts: list[tuple[int, int]], stall: float, pause: int = 0) -> None:
        """Read bursts and compare them; pause within the first one."""
        dut, size = self.dut, self.size
        wanted = [
            self._word(addr)
            for first, words in bursts
            for addr in range(first, first + words * size, size)
        ]
        asks = StreamDriver(dut, "read__request", self.random, stall)
        takes = StreamMonitor(dut, "read__data", self.random, stall)
        asking = cocotb.start_soon(asks.send(self._requests(bursts)))

        def check(index: int, word: int) -> None:
            assert word == wanted[at + index], f"word {at + index}"

        at = 0
        if pause:
            await takes.receive(1, check)
            at = 1
            dut.read__data__ready.value = 0
            for _ in range(pause):
                await RisingEdge(dut.clk)
        await takes.receive(len(wanted) - at, check)
        await asking

    def _byte(self, addr: int) -> int:
        return self.memory.get(addr, untouched(addr))

    async def write(self, bursts: list[tuple[int, int]], stall: float, pause: int = 0) -> None:
        """Write bursts and wait until they are stored; pause within the first one."""
        dut, size = self.dut, self.size
        words = []
        for first, count in bursts:
            for addr in range(first, first + count * size, size):
                data, mask = self.random.bytes(size), int(self.random.integers(1 << size))
                words.append(int.from_bytes(data, "little") | mask << 8 * size)
                for byte in range(size):
                    if mask >> byte & 1:
                        self.memory[addr + byte] = data[byte]
        asks = StreamDriver(dut, "write__request", self.random, stall)
        gives = StreamDriver(dut, "write__data", self.random, stall)
        self._expect(bursts)
        asking = cocotb.start_soon(asks.send(self._requests(bursts)))
        await gives.send(words[:1])
        for _ in range(pause):
            await RisingEdge(dut.clk)
        await gives.send(words[1:])
        await asking
        await self._ended()

    def _expect(self, bursts: list[tuple[int, int]]) -> None:
        for _, count in bursts:
            self.due.append((self.due[-1] if self.due else self.accepted) + count)

    async def _ended(self) -> None:
        """Wait until all bursts are written."""
        while self.due:
            await RisingEdge(self.dut.clk)

    async def _watch(self) -> None:
        """Check that each burst is reported once, after all of its words were accepted."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            if int(dut.write__written.value):
                assert self.due, "a burst is reported that was not asked for"
                assert self.due.popleft() <= self.accepted, "a burst is reported too early"
            self.accepted += int(dut.write__data__valid.value) and int(dut.write__data__ready.value)

    async def move_as_refreshes_begin(self, model: SdramModel, first: int) -> None:
        """Write and read single words around the cycle in which late refreshes begin.

        While no word moves, ``URGENT`` refreshes are done together, at multiples of the interval.
        """
        dut, words = self.dut, 48
        apart = URGENT * floor(SDRAM_SHEET.refi * CLOCK / 1e9)
        for move in (self._give_one, self._take_one):
            request = first | words - 1 << self.config.memory.addr_width
            name = "write" if move == self._give_one else "read"
            if name == "write":
                self._expect([(first, words)])
            await StreamDriver(dut, f"{name}__request", self.random).send([request])
            await move(first)
            before = model.counts[_PRECHARGE]
            while model.counts[_PRECHARGE] == before:
                await RisingEdge(dut.clk)
            begun = model.now
            for place in range(1, words):
                for _ in range(100 * (place < 14)):
                    await RisingEdge(dut.clk)
                while place < 14 and (model.now - begun + 14 - place) % apart:
                    await RisingEdge(dut.clk)
                await move(first + place * self.size)
            await self._ended()

    async def _give_one(self, addr: int) -> None:
        data = self.random.bytes(self.size)
        self.memory |= {addr + byte: value for byte, value in enumerate(data)}
        word = int.from_bytes(data, "little") | (1 << self.size) - 1 << 8 * self.size
        await StreamDriver(self.dut, "write__data", self.random).send([word])

    async def _take_one(self, addr: int) -> None:
        (word,) = await StreamMonitor(self.dut, "read__data", self.random).receive(1)
        assert word == self._word(addr)

    def _word(self, addr: int) -> int:
        return sum(self._byte(addr + byte) << 8 * byte for byte in range(self.size))


async def _in_time(dut: Any, port: _Port, model: SdramModel, half: int) -> None:
    """Check that transfers are as fast as required, and that the number of refreshes is right."""
    orders = [(64 * 4 * place, 64) for place in range(4)]
    there = [(row << 8, 1) for row in range(12)]
    turns = [(half + (row << 8 | bank << 6), 16) for row in range(8) for bank in range(2)]
    begun, refreshes, times = model.now, model.counts[1], []
    for move, bursts in (
        (port.read, orders),
        (port.write, [(half + addr, words) for addr, words in orders]),
        (port.read, there),
        (port.write, [(half + addr, words) for addr, words in there]),
        (port.write, turns),
    ):
        before = model.now
        await move(bursts, 0.0)
        times.append(model.now - before)
    for _ in range(1400):
        await RisingEdge(dut.clk)
    assert all(spent <= most for spent, most in zip(times, _MOST, strict=True)), times
    due = (model.now - begun) * 1e9 / CLOCK / SDRAM_SHEET.refi
    assert abs(model.counts[1] - refreshes - due) <= 2


@cocotb.test(timeout_time=_LIMIT * PERIOD_NS, timeout_unit="ns")
async def bursts_are_kept(dut: Any) -> None:
    """Reads return the last written bytes, and the chip's timing rules are met."""
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut, random)
    if settings["device"] == "sdram":
        model: Any = SdramModel(SDRAM_SHEET, CLOCK)
        cocotb.start_soon(_sdram(dut, model, random))
        pause, most = 12 * 139, 40
    else:
        model = PsramModel(PSRAM_SHEET, PSRAM_CLOCK, int(random.integers(1 << 30)))
        cocotb.start_soon(_psram(dut, model))
        pause, most = 300, 40
    port = _Port(dut, config, random)
    half = 1 << config.memory.addr_width - 1
    for stall in (0.0, 0.4, 0.0):
        reading = cocotb.start_soon(port.read(port.bursts(16, 0, half, most), stall))
        await port.write(port.bursts(16, half, 2 * half, most), stall)
        await reading
        await port.read(port.bursts(8, half, 2 * half, most), stall)
    # Rows of one bank, and words with long pauses.
    banked = [(row << 8 | 64 * int(random.integers(1)), 1 + row % 3) for row in range(12)]
    await port.read(banked, 0.0)
    if settings["device"] == "sdram":
        await _in_time(dut, port, model, half)
        await port.move_as_refreshes_begin(model, 0x140)
        # Refreshes occur in every state of a bank whose rows change.
        crowded = [(int(random.integers(8)) << 8, 1) for _ in range(150)]
        await port.read(crowded, 0.0)
        await port.write([(half + addr, 1) for addr, _ in crowded], 0.0)
    await port.write([(half, 60), (64, 256)], 0.0, pause)
    await port.read([(half, 60), (64, 256)], 0.0, pause)
    await port.write(port.bursts(6, 0, 2 * half, 3), 0.8)
    await port.read(port.bursts(6, 0, 2 * half, 3), 0.8)
    # After the end of a burst the next bank may be open, without a read there.
    await port.read([(0x40, 1), (0x80, 1), (0x7C, 1), (0x3C, 1)], 0.0)
    for _ in range(60):
        await FallingEdge(dut.clk)
        assert not int(dut.read__data__valid.value), "a word that was not asked for"
        await RisingEdge(dut.clk)
    assert all(model.memory[addr] == byte for addr, byte in port.memory.items())
