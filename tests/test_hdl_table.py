"""The activation tables and the power of two: circuit against golden model."""

import numpy as np
import pytest

from celosia.hdl.arithmetic.exponential import EXPONENTIAL_LATENCY, OctaveExponential
from celosia.hdl.functions.table import LookupTable
from celosia.sim.exponential import octave_exponential
from celosia.tb.benches.simulate import simulate
from tests.support.simulation import run_bench


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_bench(simulator):
    parameters = {"lanes": 3, "slots": 3}
    simulate(
        LookupTable(**parameters),
        bench="celosia.tb.benches.bench_table",
        simulator=simulator,
        seed=3,
        parameters=parameters,
    )


def test_value_holds_and_a_write_is_seen_by_the_next_read():
    unit = LookupTable(1)

    async def bench(ctx):
        async def step(en, index, write=None):
            ctx.set(unit.en, en)
            ctx.set(unit.index[0], index)
            ctx.set(unit.write.en, write is not None)
            if write is not None:
                ctx.set(unit.write.index, write[0])
                ctx.set(unit.write.value, write[1])
            await ctx.tick()
            return ctx.get(unit.value[0])

        await step(0, 0, (0, -5))
        await step(1, -128)
        assert await step(1, -128) == -5
        assert await step(0, 0, (0, 9)) == -5
        assert await step(1, -128) == -5
        assert await step(0, 0, (0, 17)) == -5
        assert await step(1, -128) == 9
        assert await step(1, 127) == 17
        await step(0, 0, (255, 33))
        await step(1, 127)
        assert await step(1, 0) == 33

    run_bench(unit, bench)


@pytest.mark.parametrize("name", ["lanes", "slots"])
def test_parameters_are_checked(name):
    message = f"^Table {name} must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        LookupTable(**{"lanes": 1, "slots": 1, name: 0})


def test_exponential():
    rng = np.random.default_rng(1)
    distance = np.concatenate([np.arange(600), rng.integers(0, 1 << 16, 600), [8191, 8192, 65535]])
    keep = rng.random(len(distance)) < 0.9
    mantissa, shift = octave_exponential(distance)
    unit = OctaveExponential()

    async def bench(ctx):
        waiting = []
        for step, value in enumerate(distance.tolist()):
            ctx.set(unit.distance, value)
            ctx.set(unit.keep, bool(keep[step]))
            ctx.set(unit.en, 0)
            await ctx.tick()
            ctx.set(unit.en, 1)
            await ctx.tick()
            waiting.append((int(mantissa[step]) * bool(keep[step]), int(shift[step])))
            if len(waiting) == EXPONENTIAL_LATENCY:
                assert (ctx.get(unit.mantissa), ctx.get(unit.shift)) == waiting.pop(0)

    run_bench(unit, bench)
