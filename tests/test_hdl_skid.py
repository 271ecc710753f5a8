"""The skid: no payload lost or late, and a way to wait that depends on no input."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import unsigned

from celosia.hdl.stream.skid import Skid
from tests.support.simulation import run_bench


@pytest.mark.parametrize(("rate", "stall"), [(1.0, 0.0), (1.0, 0.5), (0.5, 0.5), (0.3, 0.0)])
def test_a_stream_passes(rate: float, stall: float) -> None:
    random = np.random.default_rng(5)
    unit = Skid(unsigned(8))
    payloads = random.integers(0, 256, 300).tolist()
    cycles_in, got, cycles = [], [], []

    async def bench(ctx: Any) -> None:
        offered = False
        cycle = 0
        while len(got) < len(payloads):
            offered = offered or (len(cycles_in) < len(payloads) and random.random() < rate)
            ctx.set(unit.i.valid, offered)
            ctx.set(unit.i.payload, payloads[len(cycles_in)] if offered else 0)
            ready = ctx.get(unit.i.ready)
            for o_ready in (1, 0, int(random.random() >= stall)):
                ctx.set(unit.o.ready, o_ready)
                assert ctx.get(unit.i.ready) == ready
            if ctx.get(unit.o.valid) and o_ready:
                got.append(ctx.get(unit.o.payload))
                cycles.append(cycle)
            if offered and ready:
                cycles_in.append(cycle)
                offered = False
            await ctx.tick()
            cycle += 1

    run_bench(unit, bench)
    assert got == payloads
    assert all(came <= left <= came + 50 for came, left in zip(cycles_in, cycles, strict=True))
    if not stall:
        assert cycles_in == cycles
    if rate == 1 and not stall:
        assert cycles == list(range(len(payloads)))
