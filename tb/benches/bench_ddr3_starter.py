"""Bench of the start of a DDR3's core: delays and places of two lanes, good and bad chips."""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.ddr3 import CHIPS, Kind, start_of
from celosia.tb.benches.common import PERIOD_NS, rng, start_clock
from celosia.tb.devices.ddr3 import REGISTERS, SEQUENCE, Bus
from celosia.tb.verify.mutation.devices import LONGEST

_LIMIT = 160_000  # cycles
_ISSUES = {REGISTERS[f"sdram_dfii_pi{half}_command_issue"] for half in range(2)}
_SELECT = REGISTERS["ddrphy_dly_sel"]
_CASES: list[tuple[list[dict[int, range]], dict[str, tuple[int, ...]], list[int], list[int]]] = [
    (
        [{0: range(2), 3: range(2, 8)}, {0: range(6, 8), 1: range(2), 2: range(3, 6)}],
        {}, [5, 4], [3, 2],
    ),
    ([{2: range(1, 5)}, {1: range(3)}], {}, [3, 1], [2, 1]),
    ([{0: range(8)}, {}], {"late": (1,)}, [4, 0], [0, 0]),
    ([{}, {3: range(7, 8)}], {}, [0, 7], [0, 3]),
    ([{1: range(1, 3)}, {0: range(8)}], {"wrong": (0,)}, [2, 4], [1, 0]),
    ([{1: range(1, 3)}, {0: range(8)}], {"silent": (1,)}, [2, 4], [1, 0]),
]  # fmt: skip


@cocotb.test(timeout_time=_LIMIT * len(_CASES) * PERIOD_NS, timeout_unit="ns")
async def chips_are_started(dut: Any) -> None:
    """Each step is done in order and waited for; each lane gets the middle of its delays."""
    random = rng()
    start = start_of(CHIPS["MT41K64M16"], REGISTERS, SEQUENCE, (0, 1))
    for windows, broken, delays, places in _CASES:
        await start_clock(dut, random)
        bus, waits = Bus(windows, **broken), []
        since, before = 0, 0
        for _ in range(_LIMIT):
            await FallingEdge(dut.clk)
            if int(dut.over.value):
                break
            if int(dut.stb.value) and int(dut.cyc.value):
                waits.append(since)
                # After a command to the chip it gets its time, after other accesses none.
                if len(waits) > len(start.wake) + 1:
                    assert since >= 32 if before in _ISSUES else since < 32 or before == _SELECT
                addr, data = 4 * int(dut.adr.value), int(dut.dat_w.value)
                answer = 0
                if int(dut.we.value):
                    bus.write(addr, data)
                else:
                    answer = bus.read(addr)
                for _ in range(int(random.integers(3))):
                    await RisingEdge(dut.clk)
                    dut.dat_r.value = int(random.integers(1 << 32))
                    await FallingEdge(dut.clk)
                    assert int(dut.stb.value), "an access ends before its answer"
                    assert addr == 4 * int(dut.adr.value)
                dut.ack.value, dut.dat_r.value = 1, answer
                await RisingEdge(dut.clk)
                dut.ack.value = 0
                since, before = 0, addr
            else:
                await RisingEdge(dut.clk)
            since += 1
        assert int(dut.over.value), "the start does not end"
        failed = bool(broken) or not all(windows)
        assert int(dut.failed.value) == failed
        found = [int(dut.delay.value) >> 3 * lane & 7 for lane in range(2)]
        assert [found[lane] for lane in range(2) if windows[lane]] == [
            delays[lane] for lane in range(2) if windows[lane]
        ]
        chosen = [int(dut.place.value) >> 2 * lane & 3 for lane in range(2)]
        assert [chosen[lane] for lane in range(2) if windows[lane]] == [
            places[lane] for lane in range(2) if windows[lane]
        ]
        assert [bus.delays[lane] for lane in range(2) if windows[lane]] == [
            delays[lane] for lane in range(2) if windows[lane]
        ]
        assert bus.written[REGISTERS["ddrphy_dly_sel"]] == 0
        assert bus.log[-1] == (REGISTERS["sdram_dfii_control"], 1)
        for step, wait in zip(start.wake, waits[1:], strict=False):
            least = min(step.wait, LONGEST)
            assert least <= wait <= 2 * least + 8
        _check_steps(bus, start.test, waits)


def _check_steps(bus: Bus, test: Any, waits: list[int]) -> None:
    """Check that all tests of a start are those of its table, and that steps are waited for."""
    asked = [step for step in test if step.kind == Kind.WRITE]
    logged = [(step.addr, step.data) for step in asked]
    begin = bus.log.index(logged[0], 11)
    assert bus.log[begin : begin + len(logged)] == logged
    assert min(waits[1:]) >= 2
    assert sum(wait >= 32 for wait in waits) >= 6 * 33
