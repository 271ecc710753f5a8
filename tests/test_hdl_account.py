"""Where the array's cycles go: every cycle has one cause, the first that holds; and its window."""

import itertools

from celosia.arch.isa import Engine
from celosia.arch.registers import ARRAY_CAUSES
from celosia.hdl.control.account import ArrayAccount
from celosia.hdl.control.span import PAUSE_WIDTH, Span
from tests.support.simulation import run_bench


def cause(running, sends, refused, filling, lacking, busy, blocked, halted):
    """Return the cause of a cycle by the rules' own words, or none."""
    if not running:
        return None
    if sends:
        return "product"
    if refused:
        return "memory"
    if filling:
        return "fill"
    for engine in (Engine.LOAD, Engine.VECTOR, Engine.STORE):
        if lacking >> engine & 1:
            return f"wait_{engine.name.lower()}"
    if busy:
        return "fill"
    if blocked:
        return "queue"
    return "over" if halted else "fetch"


def test_each_cycle_has_one_cause():
    unit = ArrayAccount()
    inputs = {"running": 2, "sends": 2, "refused": 2, "filling": 2, "lacking": 16, "busy": 2}
    inputs |= {"blocked": 2, "halted": 2}
    outputs = [name.lower() for name in ARRAY_CAUSES]

    async def bench(ctx):
        for values in itertools.product(*map(range, inputs.values())):
            for name, value in zip(inputs, values, strict=True):
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            causes = [name for name in outputs if ctx.get(getattr(unit, name))]
            wanted = cause(*values)
            assert causes == ([] if wanted is None else [wanted]), values

    run_bench(unit, bench)


def test_a_span_is_from_the_first_cycle_to_the_last():
    unit = Span()
    longest = (1 << PAUSE_WIDTH) - 1
    pauses = [(0, 4), (1, 3), (0, 2), (1, 5), (0, 7), (1, 1), (0, 9)]
    too_long = [(0, 3), (1, 2), (0, longest + 6), (1, 1)]
    spans = []

    async def bench(ctx):
        for spells in (pauses, too_long):
            spans.append(0)
            ctx.set(unit.clear, 1)
            await ctx.tick()
            ctx.set(unit.clear, 0)
            for active, cycles in spells:
                ctx.set(unit.active, active)
                for _ in range(cycles):
                    spans[-1] += ctx.get(unit.grows)
                    await ctx.tick()

    run_bench(unit, bench)
    assert spans == [3 + 2 + 5 + 7 + 1, 2 + longest + 1]
