"""External memory on the chip, and the switch before it: random bursts against an array."""

import re

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from celosia.arch.presets import PRESETS
from celosia.hdl.memory.memory_switch import MemorySwitch
from celosia.hdl.memory.onchip import OnchipMemory
from celosia.tb.machine.memory_timing import ONCHIP
from tests.support.bursts import receive, send

TINY = PRESETS["tiny"]


def run(component, *benches):
    """Run benches on a component."""
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("width", "words"), [(8, 300), (32, 256), (128, 77)])
def test_random_bursts(width, words):
    config = TINY.replace(mem_width=width, mem_addr_width=16)
    unit = OnchipMemory(config.memory, words * config.mem_bytes)
    rng = np.random.default_rng(width)
    memory = [0] * words

    async def bench(ctx):
        for _ in range(60):
            stall = float(rng.choice([0, 0.5]))
            count = int(rng.integers(1, min(40, words) + 1))
            first = int(rng.integers(words - count + 1))
            burst = {"addr": first * config.mem_bytes, "last": count - 1}
            if rng.random() < 0.5:
                await send(ctx, unit.write.request, burst, rng, stall)
                for place in range(first, first + count):
                    word, mask = rng.bytes(config.mem_bytes), int(rng.integers(1 << 16))
                    mask %= 1 << config.mem_bytes
                    value = int.from_bytes(word, "little")
                    await send(ctx, unit.write.data, {"data": value, "mask": mask}, rng, stall)
                    for byte in range(config.mem_bytes):
                        if mask >> byte & 1:
                            bits = 255 << 8 * byte
                            memory[place] = memory[place] & ~bits | value & bits
                await ctx.tick().until(unit.write.written)
            else:
                await send(ctx, unit.read.request, burst, rng, stall)
                for place in range(first, first + count):
                    assert await receive(ctx, unit.read.data, rng, stall) == memory[place]
            assert not ctx.get(unit.failed)

    run(unit, bench)


def test_a_word_moves_in_every_cycle():
    unit = OnchipMemory(TINY.memory, 2048)

    async def bench(ctx):
        ctx.set(unit.read.request.payload, {"addr": 0, "last": 99})
        ctx.set(unit.read.request.valid, 1)
        ctx.set(unit.read.data.ready, 1)
        await ctx.tick()
        ctx.set(unit.read.request.valid, 0)
        arrived = []
        for cycle in range(1, 120):
            _, _, valid = await ctx.tick().sample(unit.read.data.valid)
            if valid:
                arrived.append(cycle)
        assert arrived == list(range(ONCHIP.latency, ONCHIP.latency + 100))

    run(unit, bench)


@pytest.mark.parametrize("stall", [0, 0.4])
def test_bursts_follow_without_a_gap(stall):
    unit = OnchipMemory(TINY.memory, 2048)
    rng = np.random.default_rng(4)
    bursts = [(int(rng.integers(400)), int(rng.integers(1, 9))) for _ in range(60)]
    wanted = [word for first, count in bursts for word in range(first, first + count)]
    cycles = []

    async def ask(ctx):
        for word in range(0, 512, 64):
            await send(ctx, unit.write.request, {"addr": 4 * word, "last": 63}, rng, 0)
            for place in range(word, word + 64):
                await send(ctx, unit.write.data, {"data": place, "mask": 15}, rng, 0)
        for first, count in bursts:
            await send(ctx, unit.read.request, {"addr": 4 * first, "last": count - 1}, rng, 0)

    async def take(ctx):
        cycle = 0
        while len(cycles) < len(wanted):
            ready = rng.random() >= stall
            ctx.set(unit.read.data.ready, ready)
            _, _, valid, word = await ctx.tick().sample(
                unit.read.data.valid, unit.read.data.payload
            )
            cycle += 1
            if valid and ready:
                assert word == wanted[len(cycles)]
                cycles.append(cycle)

    run(unit, ask, take)
    if not stall:
        assert cycles == list(range(cycles[0], cycles[0] + len(wanted)))


def test_words_past_the_end_are_told_and_not_written():
    unit = OnchipMemory(TINY.memory, 1024)

    async def bench(ctx):
        rng = np.random.default_rng(1)
        await send(ctx, unit.write.request, {"addr": 1020, "last": 1}, rng, 0)
        failures = []

        async def step(value):
            await send(ctx, unit.write.data, {"data": value, "mask": 15}, rng, 0)

        await step(7)
        await step(9)
        for _ in range(6):
            _, _, failed = await ctx.tick().sample(unit.failed)
            failures.append(failed)
        assert sum(failures) == 1
        await send(ctx, unit.read.request, {"addr": 0, "last": 0}, rng, 0)
        assert await receive(ctx, unit.read.data, rng, 0) == 0, "the address has not wrapped"
        await send(ctx, unit.read.request, {"addr": 1020, "last": 0}, rng, 0)
        assert await receive(ctx, unit.read.data, rng, 0) == 7

    run(unit, bench)


@pytest.mark.parametrize("size", [0, 4, 1026, 1 << 29])
def test_sizes_are_checked(size):
    message = (
        "On-chip memory must have at least two words of 4 bytes and at most 2**mem_addr_width = "
        f"{1 << 28} bytes, not {size}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        OnchipMemory(TINY.memory, size)


class Switched(wiring.Component):
    """A memory with two users."""

    def __init__(self):
        self.switch = MemorySwitch(TINY.memory)
        super().__init__({})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.switch = switch = self.switch
        m.submodules.memory = memory = OnchipMemory(TINY.memory, 1024)
        wiring.connect(m, switch.read, memory.read)
        wiring.connect(m, switch.write, memory.write)
        return m


def test_the_switch_connects_one_user():
    unit = Switched()
    switch = unit.switch
    rng = np.random.default_rng(2)

    async def bench(ctx):
        for number, name in enumerate("abab"):
            ctx.set(switch.to_b, name == "b")
            write, read = getattr(switch, f"{name}_write"), getattr(switch, f"{name}_read")
            other = getattr(switch, f"{'ab'[name == 'a']}_write")
            ctx.set(other.request.valid, 1)
            await send(ctx, write.request, {"addr": 8 * number, "last": 0}, rng, 0)
            await send(ctx, write.data, {"data": number + 5, "mask": 15}, rng, 0)
            await ctx.tick().until(write.written)
            assert not ctx.get(other.request.ready)
            ctx.set(other.request.valid, 0)
            for place in range(number + 1):
                await send(ctx, read.request, {"addr": 8 * place, "last": 0}, rng, 0)
                assert await receive(ctx, read.data, rng, 0) == place + 5

    run(unit, bench)
