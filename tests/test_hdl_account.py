"""Where the array's cycles go: every cycle has one cause, the first that holds."""

import itertools

from amaranth.sim import Simulator

from arch.isa import Engine
from hdl.account import ArrayAccount


def cause(running, sends, refused, filling, lacking, busy):
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
    return "fill" if busy else None


def test_each_cycle_has_one_cause():
    unit = ArrayAccount()
    inputs = {"running": 2, "sends": 2, "refused": 2, "filling": 2, "lacking": 16, "busy": 2}
    outputs = ("product", "memory", "fill", "wait_load", "wait_vector", "wait_store")

    async def bench(ctx):
        for values in itertools.product(*map(range, inputs.values())):
            for name, value in zip(inputs, values, strict=True):
                ctx.set(getattr(unit, name), value)
            found = [name for name in outputs if ctx.get(getattr(unit, name))]
            wanted = cause(*values)
            assert found == ([] if wanted is None else [wanted]), values

    simulator = Simulator(unit)
    simulator.add_testbench(bench)
    simulator.run()
