"""Softmax units with running rows: circuit against golden model, latency and throughput."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.functions.running import CARRY_LATENCY, SHARE_LATENCY, CarriedSum, RowShare
from hdl.functions.softmax import SoftmaxUnit
from sim.reciprocal import reciprocal
from sim.running import RunningRows, relative
from sim.softmax import softmax


def command(golden, lanes, n, *, online, first, row, m, rng):
    """Return the beats of m rows as (payload, p), and what draining is told of each running row."""
    low = rng.choice([-32768, -3000])
    q = rng.integers(low, -low, (m, n))
    if rng.random() < 0.3:
        q[:] = low
    mask = rng.random((m, n)) < rng.choice([0.0, 0.6, 1.0, 1.0])
    p = golden.weights(row, q, mask, first=first) if online else softmax(q, mask)
    count = -(-n // lanes)
    spare = ((0, 0), (0, count * lanes - n))
    q, mask, p = (np.pad(array, spare).reshape(m, count, lanes) for array in (q, mask, p))
    bits = (mask << np.arange(lanes)).sum(axis=2)
    beats = []
    for index in range(m):
        running = {"online": online, "first": first, "row": row + index if online else 0}
        for beat in range(count):
            payload = {"q": q[index, beat].tolist(), "mask": int(bits[index, beat])}
            payload |= {"last": beat == count - 1, "running": running}
            beats.append((payload, p[index, beat].tolist()))
    told = {}
    for index in range(row, row + m if online else row):
        names = ("inverse", "halvings", "keep") if golden.inverse[index] else ("inverse", "keep")
        told[index] = {name: int(getattr(golden, name)[index]) for name in names}
    return beats, told


def run_case(unit, commands, rng, stall=0.0):
    """Run commands one after the other; return the cycles of beats taken and brought, of each."""
    cycles = []

    async def bench(ctx):
        for beats, told in commands:
            cycles.append(([], []))
            written = {}
            waiting, missing, cycle = list(beats), list(beats), 0
            ctx.set(unit.i.valid, 0)
            while missing:
                offered = ctx.get(unit.i.valid) or (waiting and rng.random() >= stall)
                ctx.set(unit.i.valid, bool(offered))
                if waiting:
                    ctx.set(unit.i.payload, waiting[0][0])
                takes = rng.random() >= stall
                ctx.set(unit.o.ready, takes)
                write = unit.running
                *_, ready, valid, got, en, row, inverse, halvings, keep = await ctx.tick().sample(
                    unit.i.ready, unit.o.valid, unit.o.payload,
                    write.en, write.row, write.inverse, write.halvings, write.keep,
                )  # fmt: skip
                cycle += 1
                if offered and ready:
                    waiting.pop(0)
                    cycles[-1][0].append(cycle)
                    ctx.set(unit.i.valid, 0)
                if takes and valid:
                    payload, p = missing.pop(0)
                    assert list(got.p) == p
                    assert (got.mask, got.last) == (payload["mask"], payload["last"])
                    cycles[-1][1].append(cycle)
                if en:
                    written[row] = {"inverse": inverse, "halvings": halvings, "keep": keep}
            assert written.keys() == told.keys()
            for row, values in told.items():
                assert {name: written[row][name] for name in values} == values

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return cycles


@pytest.mark.parametrize(
    ("lanes", "max_row", "rows"), [(1, 9, 1), (2, 7, 2), (3, 20, 6), (8, 32, 5)]
)
def test_circuit_equals_model(lanes, max_row, rows):
    rng = np.random.default_rng(lanes)
    golden = RunningRows(rows)
    commands = []
    for index in range(16):
        row = int(rng.integers(rows))
        commands.append(
            command(
                golden,
                lanes,
                int(rng.integers(1, max_row + 1)) if index % 2 else 1,
                online=bool(rng.random() < 0.8),
                first=bool(rng.random() < 0.2),
                row=row,
                m=int(rng.integers(1, rows - row + 1)),
                rng=rng,
            )
        )
    run_case(SoftmaxUnit(lanes, max_row, rows), commands, rng, stall=0.3)


@pytest.mark.parametrize(("lanes", "max_row"), [(1, 8), (2, 8), (4, 40), (8, 64)])
def test_latency_is_the_formula_and_no_cycle_is_lost(lanes, max_row):
    rng = np.random.default_rng(2)
    golden = RunningRows(20)
    unit = SoftmaxUnit(lanes, max_row, 20)
    shape = {"row": 0, "m": 20, "rng": rng}
    commands = [
        command(golden, lanes, n, online=online, first=n > 1, **shape)
        for n in (max_row, 1)
        for online in (True, False)
    ]
    depth = (lanes - 1).bit_length()
    assert unit.latency == 2 * depth + 6 + 24 + max(0, 3 - depth)
    for taken, brought in run_case(unit, commands, rng):
        beats = len(taken) // 20
        assert taken == list(range(1, len(taken) + 1))
        assert brought[0] - taken[beats - 1] == unit.latency + beats - 1
        assert brought[-1] - brought[0] == len(taken) - 1


def test_sums_of_every_size_are_carried():
    rng = np.random.default_rng(4)
    totals = rng.integers(0, 1 << rng.integers(1, 49, 50))
    totals[:2] = (1 << 48) - 1
    rows = np.concatenate([np.arange(50), rng.integers(0, 50, 50)])
    distances = rng.choice([0, 1, 255, 256, 3000, 8191, 8192, 65535], 100)
    expected = relative(totals[rows], distances)
    unit = CarriedSum(50)

    async def bench(ctx):
        ctx.set(unit.write_en, 1)
        for row, total in enumerate(totals):
            ctx.set(unit.write_row, row)
            ctx.set(unit.total, int(total))
            await ctx.tick()
        ctx.set(unit.write_en, 0)
        got = []
        for index in range(100 + CARRY_LATENCY):
            ctx.set(unit.read_row, int(rows[index % 100]))
            ctx.set(unit.distance, int(distances[index % 100]))
            ctx.set(unit.fresh, int(index == 5))
            *_, carried = await ctx.tick().sample(unit.carried)
            got.append(carried)
        expected[5] = 0
        assert got[CARRY_LATENCY:] == expected.tolist()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_row_that_gets_nothing_keeps_all_of_its_output():
    """Of some sums the product of sum and reciprocal alone would be rounded to less than 1."""
    rng = np.random.default_rng(5)
    totals = rng.integers(1 << 28, 1 << 48, 40)
    inverse, exponent = reciprocal(totals)
    waiting = 5
    unit = RowShare(40, waiting)

    async def bench(ctx):
        for cycle in range(40 + waiting + SHARE_LATENCY):
            ctx.set(unit.row_en, int(cycle < 40))
            total = int(totals[min(cycle, 39)])
            running = {"online": 1, "first": 0, "row": min(cycle, 39)}
            ctx.set(unit.row, {"carried": total, "same": 1, "running": running})
            row = min(max(cycle - waiting, 0), 39)
            ctx.set(unit.inverse_en, int(0 <= cycle - waiting < 40))
            ctx.set(unit.inverse, int(inverse[row]))
            ctx.set(unit.halvings, int(-44 - exponent[row]))
            *_, en, row, keep = await ctx.tick().sample(
                unit.write.en, unit.write.row, unit.write.keep
            )
            after = cycle - waiting - SHARE_LATENCY
            assert en == (after >= 0)
            assert not en or (row, keep) == (after, 1 << 16)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
