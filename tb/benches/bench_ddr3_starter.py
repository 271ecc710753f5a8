"""Bench of the circuit that starts a DDR3 chip and sets the read delays of two byte lanes.

A model of the chip's registers (``celosia.tb.devices.ddr3``) answers the circuit. In some test
cases the model has a bad lane.
"""

from collections.abc import Iterator
from typing import Any

import cocotb
from amaranth.utils import ceil_log2
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.ddr3 import CHIPS, DELAYS, SLIPS, Ddr3Start, Kind, Step, start_up_steps
from celosia.tb.benches.common import rng, start_clock
from celosia.tb.devices.ddr3 import REGISTERS, SEQUENCE, Bus
from celosia.tb.machine.toolchain import PERIOD_NS
from celosia.tb.verify.mutation.devices import LONGEST

_LIMIT = 160_000  # cycles
_ALL = 0b11  # lanes
_CASES: list[tuple[list[dict[int, range]], dict[str, tuple[int, ...]], list[int], list[int]]] = [
    (
        [{0: range(2), 3: range(2, 8)}, {0: range(6, 8), 1: range(2), 2: range(3, 6)}],
        {}, [5, 4], [3, 2],
    ),
    ([{0: range(1, 7), 3: range(2, 6)}, {0: range(2, 6), 2: range(1, 6)}], {}, [4, 3], [0, 2]),
    ([{0: range(8)}, {1: range(8)}], {}, [4, 4], [0, 1]),
    # Each bit of a word is wrong once alone; a delay would pass if the bit were not checked.
    ([{3: range(6, 8)}, {3: range(7, 8)}], {}, [7, 7], [3, 3]),
    ([{0: range(8)}, {}], {"late": (1,)}, [4, 0], [0, 0]),
    ([{2: range(1, 5)}, {0: range(8)}], {"wrong": (0,)}, [3, 4], [2, 0]),
    ([{1: range(1, 3)}, {1: range(3)}], {"silent": (1,)}, [2, 1], [1, 1]),
]  # fmt: skip


def _accesses(
    start: Ddr3Start, delays: list[int], places: list[int]
) -> Iterator[tuple[Step, int, bool]]:
    """Yield all steps of a start with the lanes selected in each, and a mark for a list's first."""
    lists: list[tuple[tuple[Step, ...], int]] = [(start.wake, 0)]
    for place in range(SLIPS):
        for delay in range(DELAYS):
            move = start.later if delay else start.slip if place else start.first
            lists += [(move, _ALL), (start.test, 0)]
    for lane, (delay, place) in enumerate(zip(delays, places, strict=True)):
        moves = [start.first, *[start.slip] * place, *[start.later] * delay]
        lists += [(move, 1 << lane) for move in moves]
    for steps, lanes in (*lists, (start.test, 0), (start.begin, 0)):
        yield from ((step, lanes, step is steps[0]) for step in steps)


@cocotb.test(timeout_time=_LIMIT * len(_CASES) * PERIOD_NS, timeout_unit="ns")
async def chips_are_started(dut: Any) -> None:
    """The circuit starts a DDR3 chip, and sets the right read delay for each byte lane.

    All register accesses come in the expected order and after the expected waits. At the end, the
    output ``failed`` is 1 if a lane of the model is bad, otherwise 0.
    """
    random = rng()
    start = start_up_steps(CHIPS["MT41K64M16"], REGISTERS, SEQUENCE, (0, 1))
    woken = len(start.wake)
    for windows, broken, delays, places in _CASES:
        await start_clock(dut, random)
        bus = Bus(windows, **broken)
        wait = 0
        for index, (step, lanes, begins) in enumerate(_accesses(start, delays, places)):
            idle = await _idle(dut, 2 * wait + 8)
            # One cycle reads the table's next word, two may be the search between two lists.
            assert index == 0 or wait + 1 <= idle <= wait + 1 + 2 * begins, (index, wait, idle)
            writes = step.kind in (Kind.WRITE, Kind.SELECT)
            data = lanes if step.kind == Kind.SELECT else step.data
            answer = 0
            for _ in range(int(random.integers(3))):
                _check_access(dut, step.addr, data if writes else None)
                dut.dat_r.value = int(random.integers(1 << 32))
                await RisingEdge(dut.clk)
                await FallingEdge(dut.clk)
            _check_access(dut, step.addr, data if writes else None)
            if writes:
                bus.write(step.addr, data)
            else:
                answer = bus.read(step.addr)
            dut.ack.value, dut.dat_r.value = 1, answer
            await RisingEdge(dut.clk)
            dut.ack.value, dut.dat_r.value = 0, int(random.integers(1 << 32))
            wait = 1 << ceil_log2(min(step.wait, LONGEST) if index < woken else step.wait)
        assert await _idle(dut, 2 * wait + 8) > 2 * wait + 8, "an access that is not of the start"
        assert int(dut.over.value), "the start does not end"
        assert int(dut.failed.value) == bool(broken)
        assert [int(dut.delay.value) >> 3 * lane & 7 for lane in range(2)] == delays
        assert [int(dut.place.value) >> 2 * lane & 3 for lane in range(2)] == places
        assert (bus.delays, bus.places) == (delays, places)
        await RisingEdge(dut.clk)


async def _idle(dut: Any, most: int) -> int:
    """Wait up to ``most`` cycles for an access; return the cycles waited."""
    for cycle in range(most + 1):
        await FallingEdge(dut.clk)
        assert int(dut.cyc.value) == int(dut.stb.value)
        if int(dut.stb.value):
            assert not int(dut.over.value), "the start is over too early"
            return cycle
        await RisingEdge(dut.clk)
    return most + 1


def _check_access(dut: Any, addr: int, data: int | None) -> None:
    """Check the access in this cycle: a write of ``data``, or a read if it is None."""
    assert int(dut.stb.value), "an access ends before its answer"
    assert (4 * int(dut.adr.value), int(dut.we.value)) == (addr, int(data is not None))
    assert data is None or int(dut.dat_w.value) == data
