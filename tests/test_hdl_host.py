"""The host's registers and counters."""

import numpy as np
import pytest

from celosia.arch.isa import IMMEDIATE_WIDTH
from celosia.arch.presets import PRESETS
from celosia.arch.registers import COUNTERS, IDENTITY, REGISTER_MAP, Cause
from celosia.hdl.control.counters import Counters
from celosia.hdl.control.host_port import counter_names
from celosia.hdl.engines import host_registers
from celosia.tb.machine.circuit_sources import kept_verilog
from tests.support.simulation import run_bench

BUSY, ERROR, RECOVERING = 1, 2, 4
CAUSE_SHIFT = 4


async def write(ctx, unit, name, value):
    """Write a register."""
    ctx.set(unit.host.addr, REGISTER_MAP[name].addr)
    ctx.set(unit.host.write_data, value)
    ctx.set(unit.host.write_en, 1)
    await ctx.tick()
    ctx.set(unit.host.write_en, 0)


async def read(ctx, unit, name):
    """Read a register, and move the address on at once, as the answer must not depend on it."""
    ctx.set(unit.host.addr, REGISTER_MAP[name].addr)
    await ctx.tick()
    ctx.set(unit.host.addr, 0)
    return ctx.get(unit.host.read_data)


@pytest.mark.parametrize("present", [False, True])
def test_argmax_is_told_where_it_is_found(present):
    unit = host_registers(PRESETS["odd"].replace(argmax=present), {})

    async def bench(ctx):
        if present:
            ctx.set(unit.largest, {"value": -5, "column": 700_001})
        assert await read(ctx, unit, "ARGMAX") == (700_001 if present else 0)
        assert await read(ctx, unit, "ARGMAX_VALUE") == ((1 << 32) - 5 if present else 0)

    run_bench(unit, bench)


@pytest.mark.parametrize("preset", ["tiny", "odd"])
def test_registers_reach_the_sequencer(preset):
    config = PRESETS[preset].replace(program_depth=777)
    unit = host_registers(config, {"MACS": 5})

    async def bench(ctx):
        assert await read(ctx, unit, "ID") == IDENTITY
        await write(ctx, unit, "PC", 701)
        assert await read(ctx, unit, "PC") == 701 == ctx.get(unit.pc)
        await write(ctx, unit, "PROGRAM_ADDR", 40)
        for index, word in enumerate([5, 1 << 31, 7]):
            ctx.set(unit.host.addr, REGISTER_MAP["PROGRAM_DATA"].addr)
            ctx.set(unit.host.write_data, word)
            ctx.set(unit.host.write_en, 1)
            assert ctx.get(unit.program_en) == 1
            assert ctx.get(unit.program_addr) == 40 + index
            assert ctx.get(unit.program_data) == word
            await ctx.tick()
        ctx.set(unit.host.write_en, 0)
        for number in range(1, 16):
            ctx.set(unit.host.addr, REGISTER_MAP[f"R{number}"].addr)
            ctx.set(unit.host.write_data, (1 << 32) - number)
            ctx.set(unit.host.write_en, 1)
            assert ctx.get(unit.register_en) == 1
            assert ctx.get(unit.register_index) == number
            assert ctx.get(unit.register_data) == (1 << IMMEDIATE_WIDTH) - number
            assert ctx.get(unit.program_en) == 0
            await ctx.tick()
        ctx.set(unit.recovered, 1)
        ctx.set(unit.host.addr, REGISTER_MAP["CONTROL"].addr)
        for value, starts in ((0, 0), (1, 1)):
            ctx.set(unit.host.write_data, value)
            ctx.set(unit.host.write_en, 1)
            await ctx.tick()
            assert ctx.get(unit.start) == starts
        for busy in (0, 1):  # a run that begins in this cycle, and one that has begun
            ctx.set(unit.busy, busy)
            await ctx.tick()
            assert ctx.get(unit.start) == 0

    run_bench(unit, bench)


async def begin(ctx, unit):
    """Start a run, and let the core begin it as the sequencer does."""
    await write(ctx, unit, "CONTROL", 1)
    assert ctx.get(unit.start) == 1
    await ctx.tick()
    ctx.set(unit.busy, 1)


async def ends(ctx, unit):
    """Wait until STATUS is not busy, and return it."""
    for _ in range(200):
        status = await read(ctx, unit, "STATUS")
        if not status & BUSY:
            return status
    raise AssertionError("STATUS stays busy")


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause != Cause.NONE])
def test_every_cause_is_told_until_the_next_start(cause):
    unit = host_registers(PRESETS["tiny"], {})

    async def bench(ctx):
        ctx.set(unit.recovered, 1)
        await begin(ctx, unit)
        assert await read(ctx, unit, "STATUS") == BUSY
        if cause == Cause.ABORTED:
            ctx.set(unit.host.addr, REGISTER_MAP["CONTROL"].addr)
            ctx.set(unit.host.write_data, 2)
            ctx.set(unit.host.write_en, 1)
        else:
            ctx.set(unit.faults[cause], 1)
        assert ctx.get(unit.abort) == 1, "in the cycle of the fault"
        await ctx.tick()
        ctx.set(unit.host.write_en, 0)
        ctx.set(unit.faults, 0)
        ctx.set(unit.recovered, 0)
        assert ctx.get(unit.abort) == 0
        told = ERROR | RECOVERING | cause << CAUSE_SHIFT
        given_up = cause == Cause.SILENCE
        assert await read(ctx, unit, "STATUS") == told | (0 if given_up else BUSY)
        ctx.set(unit.busy, 0)
        ctx.set(unit.recovered, 1)
        assert await ends(ctx, unit) == ERROR | cause << CAUSE_SHIFT
        await begin(ctx, unit)
        assert await read(ctx, unit, "STATUS") == BUSY

    run_bench(unit, bench)


def test_a_start_waits_for_the_core_but_not_for_silent_memory():
    unit = host_registers(PRESETS["tiny"], {})

    async def bench(ctx):
        await write(ctx, unit, "CONTROL", 1)
        for _ in range(50):
            assert await read(ctx, unit, "STATUS") == BUSY | RECOVERING
            assert ctx.get(unit.start) == 0
        ctx.set(unit.faults[Cause.SILENCE], 1)
        await ctx.tick()
        ctx.set(unit.faults, 0)
        told = ERROR | RECOVERING | Cause.SILENCE << CAUSE_SHIFT
        assert await read(ctx, unit, "STATUS") == told
        await write(ctx, unit, "CONTROL", 1)
        assert await read(ctx, unit, "STATUS") == BUSY | RECOVERING
        ctx.set(unit.recovered, 1)
        await ctx.tick()
        assert ctx.get(unit.start) == 1
        ctx.set(unit.faults[Cause.INSTRUCTION], 1)
        await ctx.tick()
        # What the core says until it is reset is of the run that was stopped.
        ctx.set(unit.recovered, 0)
        await write(ctx, unit, "CONTROL", 1)
        assert await read(ctx, unit, "STATUS") == BUSY | RECOVERING

    run_bench(unit, bench)


def test_a_run_begins_within_the_program_only():
    config = PRESETS["tiny"].replace(program_depth=777)
    unit = host_registers(config, {})

    async def bench(ctx):
        ctx.set(unit.recovered, 1)
        for pc, inside in ((776, True), (777, False), (1 << 31, False), (0, True)):
            await write(ctx, unit, "PC", pc)
            await write(ctx, unit, "CONTROL", 1)
            assert ctx.get(unit.start) == inside
            status = await ends(ctx, unit)
            assert status == (0 if inside else ERROR | Cause.PROGRAM << CAUSE_SHIFT)

    run_bench(unit, bench)


def test_interrupts_are_levels_that_can_be_masked():
    unit = host_registers(PRESETS["tiny"], {})

    async def bench(ctx):
        ctx.set(unit.recovered, 1)
        await ctx.tick().repeat(10)
        assert await read(ctx, unit, "INTERRUPT") == 0, "no run has ended"
        for fault, bit in ((0, 1), (1 << Cause.TOKENS, 2)):
            await begin(ctx, unit)
            await ctx.tick().repeat(5)
            assert await read(ctx, unit, "INTERRUPT") == 0
            ctx.set(unit.faults, fault)
            await ctx.tick()
            ctx.set(unit.faults, 0)
            ctx.set(unit.busy, 0)
            await ends(ctx, unit)
            assert await read(ctx, unit, "INTERRUPT") == bit
            for enable in (0, 3 - bit, bit, 3):
                await write(ctx, unit, "INTERRUPT_ENABLE", enable)
                assert await read(ctx, unit, "INTERRUPT_ENABLE") == enable
                assert ctx.get(unit.irq) == bool(enable & bit)
            await write(ctx, unit, "INTERRUPT", 3 - bit)
            assert ctx.get(unit.irq) == 1
            await write(ctx, unit, "INTERRUPT", bit)
            assert ctx.get(unit.irq) == 0
            assert await read(ctx, unit, "INTERRUPT") == 0

    run_bench(unit, bench)


@pytest.mark.parametrize(
    ("seed", "changes", "absent"),
    [
        (1, {"sparse_lanes": 4, "protect": "correct"}, set()),
        (2, {}, {"SKIPPED", "CORRECTED"}),
        (3, {"counters": False}, set(COUNTERS) - {"CYCLES"}),
    ],
)
def test_counters_are_exact_when_not_busy(seed, changes, absent):
    rng = np.random.default_rng(seed)
    config = PRESETS["small"].replace(**changes)
    unit = host_registers(config, {"MACS": 40, "GATED": 4})
    names = counter_names(config)
    assert set(COUNTERS) - set(names) == absent

    async def bench(ctx):
        ctx.set(unit.recovered, 1)
        for cycles in (1, 5, 150):
            await write(ctx, unit, "CONTROL", 1)
            await ctx.tick()
            totals = dict.fromkeys(COUNTERS, 0)
            ctx.set(unit.busy, 1)
            for cycle in range(cycles + 1):
                # What was done in the last busy cycle is counted in the one after it.
                ctx.set(unit.busy, cycle != cycles)
                for name in names:
                    port = getattr(unit, f"count_{name.lower()}")
                    amount = int(rng.choice([0, (1 << len(port)) - 1]))
                    ctx.set(port, amount)
                    totals[name] += amount
                await ctx.tick()
            for name in names:
                ctx.set(getattr(unit, f"count_{name.lower()}"), 0)
            waited = 0
            while await read(ctx, unit, "STATUS") & BUSY:
                waited += 1
                assert waited < 40
            for name, total in totals.items():
                assert await read(ctx, unit, f"{name}_LOW") == total % (1 << 32), name
                assert await read(ctx, unit, f"{name}_HIGH") == total >> 32, name

    run_bench(unit, bench)


@pytest.mark.parametrize(
    ("widths", "places"),
    [
        ({"a": 1}, []),
        ({"a": 30, "b": 2}, [1, 0]),
        ({"a": 1, "b": 40, "c": 3}, []),
        ({"a": 1, "b": 40, "c": 3, "d": 1}, [6, 7, 0, 1]),
    ],
)
def test_counters_of_any_number_and_width(widths, places):
    rng = np.random.default_rng(len(widths))
    unit = Counters(widths, places)

    async def bench(ctx):
        for turn in range(4):
            ctx.set(unit.clear, 1)
            ctx.set(unit.hold, 1)
            await ctx.tick()
            ctx.set(unit.clear, 0)
            totals = dict.fromkeys(widths, 0)
            cycles = 60 if turn == 1 else int(rng.integers(60))
            for cycle in range(cycles + 1):
                ctx.set(unit.hold, cycle != cycles)
                for name, width in widths.items():
                    # Once as much in every cycle as can be.
                    amount = (1 << width) - 1 if turn == 1 else int(rng.integers(1 << width))
                    ctx.set(getattr(unit, f"count_{name}"), amount)
                    totals[name] += amount
                await ctx.tick()
            for name in widths:
                ctx.set(getattr(unit, f"count_{name}"), 0)
            while not ctx.get(unit.settled):
                await ctx.tick()
            for index, (name, total) in zip(places or range(4), totals.items(), strict=False):
                ctx.set(unit.index, index)
                await ctx.tick()
                assert ctx.get(unit.value) == total % (1 << 48), name

    run_bench(unit, bench)


def test_counters_left_out_vanish():
    config = PRESETS["tiny"]
    assert "count_skipped" in kept_verilog(
        host_registers(config.replace(sparse_lanes=2), {}), "top"
    )
    text = kept_verilog(host_registers(config, {}), "top")
    assert "skipped" not in text
    few = config.replace(counters=False)
    assert counter_names(few) == ["CYCLES"]
    assert counter_names(few.replace(protect="detect")) == ["CYCLES", "CORRECTED"]
