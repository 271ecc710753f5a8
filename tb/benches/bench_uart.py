"""Benches of the UART's receiver and transmitter, compared with a golden model and cocotbext-uart.

Some tests use senders and receivers with a clock frequency that differs from the circuit's.
Parameters of the benches: ``divisor``, the clock cycles per bit; ``count``, the number of bytes.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from cocotbext.uart import UartSink

from celosia.hdl.link.uart import tolerance
from celosia.sim.uart import line_bytes, line_levels
from celosia.tb.benches.common import ByteMonitor, StreamDriver, parameters, rng, start_clock
from celosia.tb.machine.toolchain import PERIOD_NS

GLITCH = 0.2
"""Chance that a bit has a wrong level for one cycle, away from its edges."""


async def _drive(dut: Any, levels: Any) -> None:
    for level in levels.tolist():
        dut.rx.value = level
        await RisingEdge(dut.clk)


def _baud(divisor: float) -> int:
    return round(1e9 / (PERIOD_NS * divisor))


@cocotb.test()
async def bytes_are_received(dut: Any) -> None:
    """The receiver outputs the bytes that the golden model decodes, despite gaps and glitches.

    Some bytes have a stop bit of 0. With such a byte, the receiver must set bit 8 of its output.
    """
    settings, random = parameters(), rng()
    divisor = settings["divisor"]
    dut.rx.value = 1
    await start_clock(dut)
    dut.rx.value = 1
    for _ in range(20):
        await RisingEdge(dut.clk)
    received = ByteMonitor(dut)
    wanted = []
    for _ in range(settings["count"]):
        byte = int(random.integers(256))
        levels = line_levels(bytes([byte]), divisor)
        broken = random.random() < 0.2
        if broken:
            levels[-divisor:] = 0
        gap = int(random.integers(3 * divisor)) if random.random() < 0.5 else 0
        after = np.ones(gap + divisor * broken, np.uint8)
        clean = np.concatenate([levels, after])
        (heard,) = line_bytes(clean, divisor)
        assert heard == (byte, broken)
        wanted.append(heard)
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


async def _send(line: Any, data: bytes, bit: float) -> None:
    """Send bytes without a pause, with bits of ``bit`` picoseconds, each edge at its own time.

    A byte is a start bit 0, eight bits from the least significant on, and a stop bit 1.
    """
    begin, now = 0.0, 0
    for byte in data:
        for level in (0, *(byte >> place & 1 for place in range(8)), 1):
            line.value = level
            begin += bit
            await Timer(round(begin) - now, "ps")
            now = round(begin)


@cocotb.test()
async def bytes_of_another_clock_are_received(dut: Any) -> None:
    """The receiver receives bytes from senders whose bits are slightly too short or too long.

    The length of a bit differs from ``divisor`` cycles by less than the fraction
    ``tolerance(divisor)`` (see :func:`celosia.hdl.link.uart.tolerance`). A sender's bits begin at
    a random time within a clock cycle.
    """
    settings, random = parameters(), rng()
    divisor = settings["divisor"]
    period = 1000 * PERIOD_NS * divisor
    dut.rx.value = 1
    await start_clock(dut)
    dut.rx.value = 1
    await Timer(20 * PERIOD_NS, "ns")
    received = ByteMonitor(dut)
    most = tolerance(divisor) - 1e-4
    for error in (-most, -1e-4, 0.0, 1e-4, most):
        data = random.integers(0, 256, settings["count"], np.uint8).tobytes()
        received.bytes.clear()
        await Timer(int(random.integers(1, 1000 * PERIOD_NS)), "ps")
        await _send(dut.rx, data, period * (1 + error))
        await Timer(20 * divisor * PERIOD_NS, "ns")
        assert received.bytes == [(byte, False) for byte in data], f"clock error {error}"


@cocotb.test()
async def short_start_bits_and_breaks_bring_no_bytes(dut: Any) -> None:
    """A start bit that ends before its middle is ignored.

    While the line stays 0 (a break), the receiver outputs only one byte: 0, marked with a wrong
    stop bit.
    """
    settings, random = parameters(), rng()
    divisor = settings["divisor"]
    await start_clock(dut)
    dut.rx.value = 1
    for _ in range(20):
        await RisingEdge(dut.clk)
    received = ByteMonitor(dut)
    for short in range(1, divisor // 2):
        # A bit later the next one begins, which is a byte's own.
        byte = int(random.integers(256))
        levels = [np.zeros(short, np.uint8), np.ones(divisor, np.uint8)]
        await _drive(dut, np.concatenate([*levels, line_levels(bytes([byte]), divisor)]))
        await _drive(dut, np.ones(2 * divisor, np.uint8))
        assert received.bytes == [(byte, False)], f"{short} cycles"
        received.bytes.clear()
    for bits in (10, 11, 25, 40):
        await _drive(dut, np.zeros(bits * divisor, np.uint8))
        await _drive(dut, np.ones(divisor, np.uint8))
        await _drive(dut, line_levels(b"\x53", divisor))
        await _drive(dut, np.ones(2 * divisor, np.uint8))
        assert received.bytes == [(0, True), (0x53, False)], f"a break of {bits} bits"
        received.bytes.clear()


async def _heard(line: Any, bit: float, count: int) -> list[int]:
    """Return bytes as received by another clock, with bits of ``bit`` picoseconds.

    The receiver samples the middle of each bit, counted from the falling edge of the start bit.
    """
    octets = []
    for _ in range(count):
        await FallingEdge(line)
        levels, now = [], 0
        for place in range(10):
            then = round((place + 0.5) * bit)
            await Timer(then - now, "ps")
            now = then
            levels.append(int(line.value))
        assert (levels[0], levels[9]) == (0, 1)
        octets.append(sum(level << place for place, level in enumerate(levels[1:9])))
    return octets


@cocotb.test()
async def bytes_are_heard_by_another_clock(dut: Any) -> None:
    """Receivers whose clocks are 4.5 % fast or slow receive the transmitter's bytes."""
    settings, random = parameters(), rng()
    await start_clock(dut)
    for error in (-0.045, 0.0, 0.045):
        data = random.integers(0, 256, settings["count"], np.uint8).tobytes()
        bit = 1000 * PERIOD_NS * settings["divisor"] * (1 + error)
        hearing = cocotb.start_soon(_heard(dut.tx, bit, len(data)))
        await StreamDriver(dut, "i", random, 0.5).send(data)
        assert bytes(await hearing) == data, f"clock error {error}"


@cocotb.test()
async def bytes_are_sent(dut: Any) -> None:
    """The transmitter sends each byte of the stream ``i`` on the line ``tx``.

    The golden model and cocotbext-uart decode the levels of the line; both must get the bytes that
    were offered. If a byte is offered while the transmitter sends the previous one, the offered
    byte must follow without a gap.
    """
    settings, random = parameters(), rng()
    divisor = settings["divisor"]
    await start_clock(dut)
    sink = UartSink(dut.tx, baud=_baud(divisor))
    data = random.integers(0, 256, settings["count"], np.uint8).tobytes()
    line = []

    async def watch() -> None:
        while True:
            await FallingEdge(dut.clk)
            line.append(int(dut.tx.value))
            idle = all(line[-10 * divisor :])
            assert int(dut.i__ready.value) or not idle, "a byte waits while nothing is sent"

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
