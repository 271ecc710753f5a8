"""The walks of the vector engine, and the readers that follow them, on Amaranth's own simulator."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.latency import drain_latency, reader_latency
from celosia.arch.presets import PRESETS
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.vector.drain import DrainReader
from celosia.hdl.vector.reader import RowReader
from celosia.hdl.vector.walker import Walker

ADDR_WIDTH = 12
SIZE = 1 << ADDR_WIDTH


def random_walk(rng):
    """Return a random walk by field name; tiles and beats of all kinds of fit."""
    n = int(rng.integers(1, 30))
    walk = {name: int(rng.integers(SIZE)) for name in ("base", "row_step", "beat_step")}
    walk |= {"tile_step": int(rng.integers(SIZE)), "m": int(rng.integers(1, 5)), "n": n}
    tile = int(rng.choice([n, n + 3, *rng.integers(1, 12, 3)]))
    return walk | {"tile": tile, "beat": int(rng.integers(1, tile + 3))}


def random_period(rng, walk):
    """Give a walk a period that its steps do not reach, of few addresses or of many."""
    period = int(rng.choice([1, 2, *rng.integers(1, 40, 3), *rng.integers(1, SIZE, 2)]))
    steps = {name: int(rng.integers(period)) for name in ("beat_step", "tile_step")}
    return walk | steps | {"period": period}


def places(walk):
    """Return the walk's beats as the docstring says them: address, count and the three ends."""
    beats = []
    for tile, first in enumerate(range(0, walk["n"], walk["tile"])):
        width = min(walk["tile"], walk["n"] - first)
        for row in range(walk["m"]):
            for beat, column in enumerate(range(0, width, walk["beat"])):
                step = tile * walk["tile_step"] + beat * walk["beat_step"]
                row_last = column + walk["beat"] >= width
                tile_last = row_last and row == walk["m"] - 1
                last = tile_last and first + width == walk["n"]
                count = min(walk["beat"], width - column)
                step %= walk.get("period") or SIZE
                addr = (walk["base"] + row * walk["row_step"] + step) % SIZE
                beats.append((addr, count, row_last, tile_last, last))
    return beats


def simulate(unit, *testbenches):
    """Run testbenches; the first one ends the simulation."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    for index, testbench in enumerate(testbenches):
        simulator.add_testbench(testbench, background=index > 0)
    simulator.run()


async def start(ctx, unit, walk):
    """Start a walk; later values of the port must not matter."""
    ctx.set(unit.walk, walk)
    if isinstance(unit, Walker) and unit.stages:
        await ctx.tick()
    ctx.set(unit.start, 1)
    await ctx.tick()
    ctx.set(unit.start, 0)
    ctx.set(unit.walk, dict.fromkeys(walk, 0))


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("registered", [False, True])
def test_walks_are_as_described(registered, wraps, stall):
    rng = np.random.default_rng(3)
    unit = Walker(ADDR_WIDTH, wraps=wraps, stages=int(registered))

    async def bench(ctx):
        for _ in range(90 if wraps else 60):
            walk = random_walk(rng)
            if wraps and rng.random() < 0.7:
                walk = random_period(rng, walk)
            await start(ctx, unit, walk)
            for place in places(walk):
                while rng.random() < stall:
                    await ctx.tick()
                assert ctx.get(unit.o.valid)
                p = ctx.get(unit.o.p)
                assert (p.addr, p.count, p.row_last, p.tile_last, p.last) == place
                ctx.set(unit.o.ready, 1)
                await ctx.tick()
                ctx.set(unit.o.ready, 0)
            assert not ctx.get(unit.o.valid)

    simulate(unit, bench)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("preset", ["odd", "small"])
def test_reader_brings_the_bytes_of_every_beat(preset, stall, registered):
    config = PRESETS[preset].replace(scratchpad_bytes=SIZE, registered=registered)
    rng = np.random.default_rng(4)
    unit = RowReader(config.access, stages=config.stages)
    memory = rng.integers(0, 256, SIZE + config.line_bytes)

    async def scratchpad(ctx):
        due = [None] * config.sram_latency
        while True:
            ready = rng.random() >= stall
            addr = due.pop(0)
            ctx.set(unit.port.request.ready, int(ready))
            ctx.set(unit.port.valid, int(addr is not None))
            if addr is not None:
                ctx.set(unit.port.data, memory[addr : addr + config.line_bytes].tolist())
            accepted = ready and ctx.get(unit.port.request.valid)
            due.append(ctx.get(unit.port.request.p) if accepted else None)
            await ctx.tick()

    async def bench(ctx):
        for _ in range(30):
            walk = random_walk(rng)
            await start(ctx, unit, walk)
            cycles = 1
            for index, (addr, count, row_last, tile_last, last) in enumerate(places(walk)):
                while not ctx.get(unit.o.valid) or rng.random() < stall:
                    await ctx.tick()
                    cycles += 1
                assert stall or cycles == reader_latency(config.stages) + index
                p = ctx.get(unit.o.p)
                assert (p.count, p.row_last, p.tile_last, p.last) == (
                    (count, row_last, tile_last, last)
                )
                np.testing.assert_array_equal(list(p.data), memory[addr : addr + config.line_bytes])
                ctx.set(unit.o.ready, 1)
                await ctx.tick()
                cycles += 1
                ctx.set(unit.o.ready, 0)

    simulate(unit, bench, scratchpad)


@pytest.mark.parametrize(
    ("cols", "lanes", "acc_width"), [(1, 1, 32), (7, 3, 21), (6, 2, 32), (5, 5, 17)]
)
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_drain_reader_takes_rows_apart(cols, lanes, acc_width, stall, registered):
    config = PRESETS["small"].replace(
        cols=cols,
        lanes=lanes,
        acc_width=acc_width,
        max_k=1,
        operand_width=4,
        acc_depth=64,
        registered=registered,
        fused=cols % lanes == 0,
    )
    rng = np.random.default_rng(5)
    unit = DrainReader(config.part(VectorConfig))
    half = 1 << (acc_width - 1)
    memory = rng.integers(-half, half, (config.accumulators.depth, cols))

    async def accumulators(ctx):
        due = [None] * config.acc_latency
        while True:
            ready = rng.random() >= stall
            addr = due.pop(0)
            ctx.set(unit.port.request.ready, int(ready))
            ctx.set(unit.port.valid, int(addr is not None))
            if addr is not None:
                ctx.set(unit.port.data, memory[addr].tolist())
            accepted = ready and ctx.get(unit.port.request.valid)
            due.append(ctx.get(unit.port.request.p) if accepted else None)
            await ctx.tick()

    async def bench(ctx):
        async def tick():
            # What arrives in a cycle is there before this side looks.
            await ctx.tick()
            await ctx.delay(1e-7)

        for _ in range(12):
            m, n = int(rng.integers(1, 6)), int(rng.integers(1, 3 * cols + 1))
            addr, stride = int(rng.integers(20)), int(rng.integers(15))
            for name, value in {"acc_addr": addr, "acc_stride": stride, "m": m, "n": n}.items():
                ctx.set(getattr(unit, name), value)
            ctx.set(unit.start, 1)
            await tick()
            ctx.set(unit.start, 0)
            cycles, beats = 1, 0
            for tile, first in enumerate(range(0, n, cols)):
                for row in range(m):
                    values = memory[addr + tile * stride + row, : n - first].tolist()
                    for group in range(0, len(values), lanes):
                        while not ctx.get(unit.o.valid) or rng.random() < stall:
                            await tick()
                            cycles += 1
                        assert stall or cycles == drain_latency(config) + beats
                        part = values[group : group + lanes]
                        assert list(ctx.get(unit.o.p).value)[: len(part)] == part
                        assert ctx.get(unit.o.p).keep == (1 << lanes) - 1
                        ctx.set(unit.o.ready, 1)
                        await tick()
                        ctx.set(unit.o.ready, 0)
                        cycles, beats = cycles + 1, beats + 1
            assert not ctx.get(unit.o.valid)

    simulate(unit, bench, accumulators)
