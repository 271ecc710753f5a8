"""Slots that products need: each of them exactly as long as the array reads it."""

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.matrix.slots import SLOT_GUARDS
from tests.support.simulation import run_bench


@pytest.mark.parametrize("kind", ["systolic", "tree"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rows": 1, "cols": 1},
        {"registered": True},
        {"rows": 1, "cols": 1, "registered": True},
    ],
)
def test_a_line_waits_for_its_own_slot_and_for_the_skew(kind: str, changes) -> None:
    shape = {"rows": 5, "cols": 3, "lanes": 1, "weight_depth": 4, "array": kind}
    config = PRESETS["small"].replace(**(shape | changes))
    systolic = kind == "systolic"
    guard = SLOT_GUARDS[config.stages](
        lines=config.lines, weight_depth=4, late=config.stages, systolic=systolic
    )
    registered = "registered" in changes
    rng = np.random.default_rng(7)
    held: list[int] = []
    freed = dict.fromkeys(range(4), -99)
    start = -99
    seen = set()

    async def bench(ctx):
        nonlocal start
        slot, line = 0, 0
        moves = True
        following = (0, 0)
        for cycle in range(2000):
            if moves:
                slot, line = following
            following = int(rng.integers(4)), int(rng.integers(guard.lines))
            if registered:
                moves = rng.random() < 0.6
                ctx.set(guard.moves, int(moves))
                ctx.set(guard.next_slot, following[0])
                ctx.set(guard.next_line, following[1])
            hold = len(held) < guard.depth and rng.random() < 0.4
            frees = bool(held or hold) and rng.random() < 0.4
            ctx.set(guard.slot, slot)
            ctx.set(guard.line, line)
            ctx.set(guard.hold, int(hold))
            ctx.set(guard.freed, int(frees))
            free = slot not in held
            if kind == "systolic":
                # Row r sees a vector r cycles later; lines keep the order of their tiles' starts.
                free &= cycle > freed[slot] + line and cycle - line > start
            # What is told from a register is known from the first cycle's end on.
            if cycle or not registered:
                assert ctx.get(guard.free) == free
            seen.add(free)
            written = free and rng.random() < 0.5
            ctx.set(guard.written, int(written))
            ctx.set(guard.index, line)
            if written:
                start = cycle - line
            held.extend([slot] * hold)
            if frees:
                freed[held.pop(0)] = cycle
            await ctx.tick()

    run_bench(guard, bench)
    assert seen == {True, False}
