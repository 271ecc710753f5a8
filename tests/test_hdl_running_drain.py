"""What draining needs of running rows: scales and residuals against the golden model."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from arch.presets import PRESETS
from hdl.vector.running_drain import ResidualScale, RunningScale
from sim.running import RunningRows

ROWS = 12
CONFIG = PRESETS["odd"].replace(running_rows=ROWS)


def golden_rows(rng):
    """Return running rows after two chunks, and some that never had a column."""
    rows = RunningRows(ROWS)
    keep = rng.random((ROWS, 30)) < 0.8
    keep[2] = keep[7] = False
    for first in (True, False):
        q = rng.integers(-2000, 2000, (ROWS, 30)) * rng.integers(0, 2, (ROWS, 1))
        rows.weights(0, q, keep, first=first)
    return rows


def places(m, n):
    """Return (row, columns, ends the row, ends the tile) of every beat of a drain, in order."""
    beats = []
    for tile in range(0, n, CONFIG.cols):
        width = min(CONFIG.cols, n - tile)
        for row in range(m):
            for at in range(0, width, CONFIG.lanes):
                count = min(CONFIG.lanes, width - at)
                last = at + count == width
                beats.append((row, count, last, last and row == m - 1))
    return beats


async def load(ctx, port, rows):
    """Write the running rows."""
    for row in range(ROWS):
        ctx.set(port.en, 1)
        ctx.set(port.row, row)
        for name in ("inverse", "halvings", "keep"):
            ctx.set(getattr(port, name), int(getattr(rows, name)[row]))
        await ctx.tick()
    ctx.set(port.en, 0)


def simulate(unit, *benches):
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_scales_are_of_each_beats_row(stall):
    rng = np.random.default_rng(1)
    rows = golden_rows(rng)
    unit = RunningScale(CONFIG)

    async def bench(ctx):
        await load(ctx, unit.write, rows)
        for _ in range(20):
            m, n = int(rng.integers(1, 9)), int(rng.integers(1, 12))
            row = int(rng.integers(ROWS - m + 1))
            multiplier = int(rng.integers(-(1 << 31), 1 << 31))
            shift = int(rng.integers(-31, 30))
            for name, value in (("row", row), ("m", m), ("n", n), ("start", 1)):
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            ctx.set(unit.start, 0)
            await ctx.tick()
            ctx.set(unit.scale, {"multiplier": multiplier, "shift": shift})
            wanted = [part.tolist() for part in rows.scale(row, m, multiplier, shift)]
            expected = [(wanted[0][place[0]], wanted[1][place[0]]) for place in places(m, n)]
            got, cycles, cycle = [], [], 2
            while len(got) < len(expected):
                ctx.set(unit.o.ready, takes := rng.random() >= stall)
                *_, valid, payload = await ctx.tick().sample(unit.o.valid, unit.o.payload)
                if takes and valid:
                    got.append((payload.multiplier, payload.shift))
                    cycles.append(cycle)
                cycle += 1
            assert got == expected
            if not stall:
                assert cycles == list(range(unit.latency, unit.latency + len(got)))
            ctx.set(unit.o.ready, 1)
            *_, valid = await ctx.tick().sample(unit.o.valid)
            assert not valid

    simulate(unit, bench)


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_residuals_are_what_their_rows_keep(stall):
    rng = np.random.default_rng(2)
    rows = golden_rows(rng)
    assert rows.keep[2] == 1 << 16
    unit = ResidualScale(CONFIG)

    async def bench(ctx):
        await load(ctx, unit.write, rows)
        for running in (1, 0, 1, 1, 1):
            m, n = int(rng.integers(1, 9)), int(rng.integers(4, 12))
            row = int(rng.integers(ROWS - m + 1))
            for name, value in (("row", row), ("running", running), ("start", 1)):
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            ctx.set(unit.start, 0)
            residuals = rng.integers(-32768, 32768, (len(places(m, n)), CONFIG.lanes))
            residuals[rng.random(residuals.shape) < 0.2] = -32768
            expected, payloads = [], []
            for residual, (index, count, row_last, tile_last) in zip(
                residuals, places(m, n), strict=True
            ):
                kept = rows.kept(row + index, residual[None])[0] if running else residual
                expected.append(kept.tolist())
                data = list(residual.astype("<i2").tobytes())
                data += [0] * (CONFIG.line_bytes - len(data))
                marks = {"count": count, "row_last": row_last, "tile_last": tile_last, "last": 0}
                payloads.append({"data": data} | marks)
            got, cycles, cycle, offered = [], [], 0, False
            while len(got) < len(expected):
                offered = payloads and (offered or rng.random() >= stall)
                ctx.set(unit.i.valid, bool(offered))
                if payloads:
                    ctx.set(unit.i.payload, payloads[0])
                ctx.set(unit.o.ready, takes := rng.random() >= stall)
                *_, ready, valid, payload = await ctx.tick().sample(
                    unit.i.ready, unit.o.valid, unit.o.payload
                )
                if offered and ready:
                    payloads.pop(0)
                    offered = False
                if takes and valid:
                    data = np.array(list(payload.data), np.uint8)[: 2 * CONFIG.lanes]
                    got.append(data.view("<i2").tolist())
                    cycles.append(cycle)
                cycle += 1
            assert got == expected
            if not stall:
                assert cycles == list(range(unit.latency, unit.latency + len(got)))

    simulate(unit, bench)
