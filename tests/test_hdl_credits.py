"""The queue of credits: a pipeline without an enable loses nothing, and waits no longer."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import unsigned

from celosia.hdl.stream.credits import CreditQueue
from tests.support.simulation import run_bench


def _passed(latency: int, rate: float, stall: float, count: int) -> tuple[list[int], list[int]]:
    """Return when each of ``count`` payloads entered a pipeline, and when it left the queue."""
    random = np.random.default_rng(5)
    unit = CreditQueue(unsigned(16), latency)
    pipeline: list[int | None] = [None] * latency
    entered: list[int] = []
    left: list[int] = []

    async def bench(ctx: Any) -> None:
        offered, cycle = False, 0
        while len(left) < count:
            offered = offered or (len(entered) < count and random.random() < rate)
            room = ctx.get(unit.room)
            new = len(entered) if offered and room else None
            pipeline.append(new)
            out = pipeline.pop(0)
            ctx.set(unit.taken, new is not None)
            ctx.set(unit.i.valid, out is not None)
            ctx.set(unit.i.payload, int(random.integers(1 << 16)) if out is None else out)
            for ready in (1, 0, int(random.random() >= stall)):
                ctx.set(unit.o.ready, ready)
                assert ctx.get(unit.room) == room
            if ctx.get(unit.o.valid) and ready:
                assert ctx.get(unit.o.payload) == len(left)
                left.append(cycle)
            if new is not None:
                entered.append(cycle)
                offered = False
            await ctx.tick()
            cycle += 1

    run_bench(unit, bench)
    return entered, left


@pytest.mark.parametrize("latency", [0, 1, 2, 5, 9])
@pytest.mark.parametrize(("rate", "stall"), [(1.0, 0.0), (1.0, 0.5), (0.5, 0.5), (0.3, 0.0)])
def test_payloads_leave_in_order(latency: int, rate: float, stall: float) -> None:
    entered, left = _passed(latency, rate, stall, 300)
    waits = [out - into for into, out in zip(entered, left, strict=True)]
    assert min(waits) == latency
    if not stall:
        assert max(waits) == latency
    if rate == 1 and not stall:
        assert entered == list(range(300))


@pytest.mark.parametrize("latency", [1, 4, 9])
def test_a_wait_leaves_no_gap(latency: int) -> None:
    """Behind a long wait all places are full, and payloads leave in each cycle from then on."""
    unit = CreditQueue(unsigned(8), latency)
    left: list[int] = []

    async def bench(ctx: Any) -> None:
        pipeline, entered = [0] * latency, 0
        for cycle in range(6 * latency + 40):
            room = ctx.get(unit.room)
            assert room or cycle >= latency + 1
            pipeline.append(room)
            ctx.set(unit.taken, room)
            ctx.set(unit.i.valid, pipeline.pop(0))
            ctx.set(unit.o.ready, cycle >= 3 * latency)
            entered += room
            if cycle == 3 * latency:
                assert entered == latency + 1
            if cycle >= 3 * latency:
                left.append(ctx.get(unit.o.valid))
            await ctx.tick()

    run_bench(unit, bench)
    assert all(left)
