"""Benches of the serial line: against the golden model, and against a package that is not ours.

Parameters: ``divisor``, and ``count`` of bytes. The component has the line ``rx`` and the flow
``o``, or the stream ``i`` and the line ``tx``.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from cocotbext.uart import UartSink, UartSource

from sim.uart import line_bytes, line_levels
from tb.bench import PERIOD_NS, StreamDriver, parameters, rng, start_clock

GLITCH = 0.2
"""Chance that a bit has a wrong level for one cycle, away from its edges."""


class _Received:
    """Notes what the receiver brings."""

    def __init__(self, dut: Any):
        self.bytes: list[tuple[int, bool]] = []
        self._dut = dut
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await FallingEdge(self._dut.clk)
            if int(self._dut.o__valid.value):
                payload = int(self._dut.o__payload.value)
                self.bytes.append((payload & 255, bool(payload >> 8)))


async def _drive(dut: Any, levels: Any) -> None:
    for level in levels.tolist():
        dut.rx.value = level
        await RisingEdge(dut.clk)


def _baud(divisor: float) -> int:
    return round(1e9 / (PERIOD_NS * divisor))


@cocotb.test()
async def bytes_are_received(dut: Any) -> None:
    """Bytes with gaps, short disturbances and broken stop bits are the golden model's."""
    given, random = parameters(), rng()
    divisor = given["divisor"]
    dut.rx.value = 1
    await start_clock(dut)
    dut.rx.value = 1
    for _ in range(20):
        await RisingEdge(dut.clk)
    received = _Received(dut)
    wanted = []
    for _ in range(given["count"]):
        byte = int(random.integers(256))
        levels = line_levels(bytes([byte]), divisor)
        broken = random.random() < 0.2
        if broken:
            levels[-divisor:] = 0
        gap = int(random.integers(3 * divisor)) if random.random() < 0.5 else 0
        after = np.ones(gap + divisor * broken, np.uint8)
        clean = np.concatenate([levels, after])
        (found,) = line_bytes(clean, divisor)
        assert found == (byte, broken)
        wanted.append(found)
        disturbed = clean.copy()
        if divisor >= 8:
            for bit in range(10):
                if random.random() < GLITCH:
                    disturbed[bit * divisor + int(random.integers(2, divisor - 2))] ^= 1
        if gap > 3:
            disturbed[len(levels) + divisor * broken + gap // 2] ^= 1
        await _drive(dut, disturbed)
    for _ in range(2 * divisor):
        await RisingEdge(dut.clk)
    assert received.bytes == wanted


@cocotb.test()
async def bytes_of_another_clock_are_received(dut: Any) -> None:
    """A sender that is not ours, up to 3 % fast or slow, is understood."""
    given, random = parameters(), rng()
    dut.rx.value = 1
    await start_clock(dut)
    dut.rx.value = 1
    await Timer(20 * PERIOD_NS, "ns")
    received = _Received(dut)
    for error in (-0.03, -0.01, 0.0, 0.01, 0.03) if given["divisor"] >= 16 else (0.0,):
        data = random.integers(0, 256, given["count"], np.uint8).tobytes()
        received.bytes.clear()
        source = UartSource(dut.rx, baud=_baud(given["divisor"] * (1 + error)))
        await source.write(data)
        await source.wait()
        await Timer(20 * given["divisor"] * PERIOD_NS, "ns")
        assert received.bytes == [(byte, False) for byte in data], f"clock error {error}"


@cocotb.test()
async def bytes_are_sent(dut: Any) -> None:
    """The line is the golden model's, cycle by cycle, and a package that is not ours reads it."""
    given, random = parameters(), rng()
    divisor = given["divisor"]
    await start_clock(dut)
    sink = UartSink(dut.tx, baud=_baud(divisor))
    data = random.integers(0, 256, given["count"], np.uint8).tobytes()
    line = []

    async def watch() -> None:
        while True:
            await FallingEdge(dut.clk)
            line.append(int(dut.tx.value))

    cocotb.start_soon(watch())
    half = len(data) // 2
    await StreamDriver(dut, "i", random).send(data[:half])
    sent = len(line)
    await StreamDriver(dut, "i", random, 0.99).send(data[half:])
    for _ in range(12 * divisor):
        await RisingEdge(dut.clk)
    assert line_bytes(np.array(line, np.uint8), divisor) == [(byte, False) for byte in data]
    assert sink.read_nowait() == data
    # Bytes that wait follow one another at once.
    begin = line.index(0)
    together = line_levels(data[: half - 1], divisor).tolist()
    assert line[begin : begin + len(together)] == together
    assert sent <= begin + 10 * divisor * (half - 1) + 2
