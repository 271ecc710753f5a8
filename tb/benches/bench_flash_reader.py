"""Bench of the flash reader: reads from the model of a chip that starts in any of its modes."""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, First, RisingEdge

from celosia.arch.flash import ADDR_WIDTH, BOARD_NS, READS, WAITED, start_up
from celosia.tb.benches.common import (
    StreamDriver,
    StreamMonitor,
    parameters,
    rng,
    start_clock,
)
from celosia.tb.devices.flash import FlashModel, FlashModes
from celosia.tb.machine.toolchain import PERIOD_NS
from celosia.tb.verify.mutation.devices import CLOCK, FLASH, FLASH_SHEET

_PINS = ("sck", "cs_n", "dq_o", "dq_oe")
_LANES = 4
_TIMES, _START = FLASH.at(CLOCK), start_up(FLASH, _LANES)
_LIMIT = 30_000  # cycles
_LONGEST = max(_TIMES.power, _TIMES.wake, 2 * _TIMES.half * 8 * _LANES) + 2  # cycles of a step
_MODES: list[dict[str, Any]] = [
    {"asleep": True},
    {"four_bytes": True, "four_at_power_on": True},
    {"continuous": 2},
    {"continuous": 2, "four_bytes": True},
    {"continuous": 4, "four_bytes": True},
    {"commands": 4, "asleep": True, "dummy": 6},
]


def _driven(bits: str, others: int, quad: bool) -> list[tuple[int, int]]:
    """Return the levels and output enables of all lines, clock by clock."""
    enable = 0b1101 | quad << 1
    return [((int(bit) | others << 1) & enable, enable) for bit in bits]


class _Pins:
    """The pins in every cycle, for the chip model, compared with the start-up and the requests."""

    def __init__(
        self, dut: Any, model: FlashModel, requests: list[tuple[int, int]], *, stalls: bool
    ):
        self._dut, self._model, self._stalls = dut, model, stalls
        self._wanted = [
            _driven(s.line * s.clocks if len(s.line) == 1 else s.line, s.others, quad=s.quad)
            for s in _START
        ]
        for addr, count in requests:
            command = _driven(f"{READS[_LANES]:08b}{addr:024b}", 0b111, quad=False)
            self._wanted.append(command + [(0, 0)] * (WAITED + count * 8 // _LANES))
        self._since = 0  # cycles since the chip was selected or not selected any more
        self._lines: list[tuple[int, int]] = []  # of each clock since then
        self.ended = 0

    async def watch(self) -> None:
        before, held = {"cs_n": 1, "sck": 0}, (0, 0)
        while True:
            await FallingEdge(self._dut.clk)
            pins = {name: int(getattr(self._dut, f"pins__{name}").value) for name in _PINS}
            self._dut.pins__dq_i.value = self._model.step(pins)
            driven = (pins["dq_o"] & pins["dq_oe"], pins["dq_oe"])
            self._since += 1
            if pins["cs_n"] != before["cs_n"]:
                (self._check_end if pins["cs_n"] else self._check_begin)()
                self._since, self._lines = 0, []
            elif not pins["cs_n"] and pins["sck"] >= before["sck"]:
                assert driven == held, "lines change but as the clock falls"
            if pins["sck"] and not before["sck"]:
                self._lines.append(driven)
            assert self._since <= _LONGEST or self.ended >= len(_START), "the start-up takes long"
            waits = self._since < _TIMES.deselect or self.ended <= len(_START)
            ready = waits or int(self._dut.i__ready.value)
            assert ready or not pins["cs_n"], "no request is accepted after a read"
            before, held = pins, driven

    def _check_begin(self) -> None:
        """Check that the start-up does not wait longer than required, except one or two cycles."""
        most = _TIMES.wake if self.ended else _TIMES.power
        assert self._since <= most + 2 or self.ended >= len(_START), "the start-up takes long"

    def _check_end(self) -> None:
        assert self._lines == self._wanted[self.ended], f"selection {self.ended}"
        # Only bytes that are not accepted stop the clock.
        least = _TIMES.half * (2 * len(self._lines) + 1)
        stands = self._stalls and self.ended >= len(_START)
        assert self._since == least or stands, f"{self._since} cycles"
        self.ended += 1


def _chip(contents: bytes, modes: FlashModes | None = None) -> FlashModel:
    model = FlashModel(FLASH_SHEET, CLOCK, contents, quad=True, way=BOARD_NS, modes=modes)
    # A cycle has passed since the reset.
    model.step({"sck": 0, "cs_n": 1, "dq_o": 0b1100, "dq_oe": 0b1101})
    return model


@cocotb.test(timeout_time=_LIMIT * len(_MODES) * PERIOD_NS, timeout_unit="ns")
async def bytes_come(dut: Any) -> None:
    """Every request's bytes arrive in order, and the chip's timing rules are met."""
    random = rng()
    contents = random.bytes(300)
    for index, modes in enumerate(_MODES):
        await start_clock(dut, random)
        left = FlashModes(**modes)
        model = _chip(contents, left)
        stall = (0.0, 0.9, 0.9, 0.5)[index % 4]
        requests = [(0, 1), (0x10, 40), (0x2A, 12), (0x12C, 2)]
        requests += [(int(random.integers(1 << ADDR_WIDTH)), 1030 if index == 3 else 7)]
        pins = _Pins(dut, model, requests, stalls=stall > 0)
        watching = cocotb.start_soon(pins.watch())
        # The start-up waits for no request; requests wait for it.
        while index % 2 and pins.ended < len(_START):
            await RisingEdge(dut.clk)
        await _read(dut, contents, requests, random, stall)
        for _ in range(400):
            await FallingEdge(dut.clk)
            assert not int(dut.o__valid.value), "a byte that nobody asked for"
            await RisingEdge(dut.clk)
        assert pins.ended == len(_START) + len(requests)
        assert model.modes == FlashModes(four_at_power_on=left.four_at_power_on)
        watching.cancel()


@cocotb.test(timeout_time=_LIMIT * ADDR_WIDTH * PERIOD_NS, timeout_unit="ns")
async def long_reads_do_not_end_early(dut: Any) -> None:
    """A long read from the flash chip returns at least its first six bytes.

    The bench reads 2^n + 1 bytes, for each n from 6 to the highest bit of the field with the
    length. A unit that ignores bit n of the field would return only one byte.
    """
    random = rng()
    contents = random.bytes(300)
    for bits in range(6, ADDR_WIDTH):
        await start_clock(dut)
        watching = cocotb.start_soon(_Pins(dut, _chip(contents), [], stalls=False).watch())
        addr = int(random.integers(1 << ADDR_WIDTH))
        await StreamDriver(dut, "i", random).send([addr | 1 << ADDR_WIDTH + bits])
        takes = StreamMonitor(dut, "o", random)
        assert bytes(await takes.receive(6)) == _bytes(contents, addr, 6)
        watching.cancel()


@cocotb.test(timeout_time=2_000_000 * PERIOD_NS, timeout_unit="ns")
async def a_long_read_has_all_its_bytes(dut: Any) -> None:
    """A read of ``long_read`` bytes ends after that many bytes.

    Mutation tests of the upper length bits set the bench's parameter ``long_read`` to a large
    value, since these bits matter only in reads of tens of thousands of bytes. No chip is modelled:
    the data lines are 0.
    """
    count = parameters()["long_read"]
    await start_clock(dut)
    dut.o__ready.value = 1
    dut.pins__dq_i.value = 0
    await StreamDriver(dut, "i", rng()).send([count - 1 << ADDR_WIDTH])
    ended = RisingEdge(dut.i__ready)
    for _ in range(count):
        assert await First(RisingEdge(dut.o__valid), ended) is not ended, "the read ends early"
    assert await First(RisingEdge(dut.o__valid), ended) is ended, "the read ends late"


def _bytes(contents: bytes, addr: int, count: int) -> bytes:
    places = (at % (1 << ADDR_WIDTH) for at in range(addr, addr + count))
    return bytes(contents[at] if at < len(contents) else 0xFF for at in places)


async def _read(
    dut: Any,
    contents: bytes,
    requests: list[tuple[int, int]],
    random: np.random.Generator,
    stall: float,
) -> None:
    """Request bytes and compare them."""
    asks = StreamDriver(dut, "i", random, 0.5)
    takes = StreamMonitor(dut, "o", random, stall)
    asking = cocotb.start_soon(
        asks.send([addr | count - 1 << ADDR_WIDTH for addr, count in requests])
    )
    for addr, count in requests:
        assert bytes(await takes.receive(count)) == _bytes(contents, addr, count)
    await asking
