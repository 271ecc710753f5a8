"""The add-normalize unit: golden model under both simulators, throughput, error messages."""

import re

import numpy as np
import pytest

from celosia.hdl.functions.addnorm import AddNormUnit, NormalizeLane
from celosia.sim.norm import normalize
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer
from tests.support.simulation import run_bench


@pytest.mark.parametrize(
    ("simulator", "lanes", "max_row", "commands", "beats"),
    [
        ("verilator", 3, 4096, 2, 1400),
        ("icarus", 5, 33, 10, 30),
        ("icarus", 1, 1, 10, 40),
        *longer(
            ("verilator", 8, 1024, 10, 140), ("icarus", 3, 4096, 2, 1400), ("icarus", 5, 33, 20, 30)
        ),
    ],
)
def test_bench(simulator, lanes, max_row, commands, beats):
    simulate(
        AddNormUnit(lanes=lanes, max_row=max_row),
        bench="celosia.tb.benches.bench_addnorm",
        simulator=simulator,
        seed=lanes,
        parameters={
            "lanes": lanes,
            "max_row": max_row,
            "commands": commands,
            "beats": beats,
            "stall": 0.25,
        },
    )


def run_case(unit, x, *, rms, eps, o_ready=lambda cycle: True):
    """Return values [m, n] and the cycles in which beats of ``i`` and ``o`` moved."""
    n, lanes = x.shape[1], unit.lanes
    beats = -(-n // lanes)
    padded = np.pad(x, ((0, 0), (0, beats * lanes - n))).reshape(-1, lanes)
    values, cycles_in, cycles_out = [], [], []

    async def bench(ctx):
        for name, value in {"n": n, "rms": rms, "eps": eps}.items():
            ctx.set(getattr(unit, name), value)
        ctx.set(unit.o_sum.ready, 1)
        cycle = 0
        while len(cycles_out) < len(padded):
            assert cycle < 1000 + 2 * len(padded), "beats are lost"
            sent = len(cycles_in)
            ctx.set(unit.i.valid, sent < len(padded))
            if sent < len(padded):
                last = sent % beats == beats - 1
                present = n - lanes * (beats - 1) if last else lanes
                beat = {"x": padded[sent].tolist(), "r": [0] * lanes}
                ctx.set(unit.i.p, {**beat, "mask": (1 << present) - 1, "last": last})
            ctx.set(unit.o.ready, o_ready(cycle))
            if ctx.get(unit.i.valid) and ctx.get(unit.i.ready):
                cycles_in.append(cycle)
            if ctx.get(unit.o.valid) and ctx.get(unit.o.ready):
                cycles_out.append(cycle)
                values.append([ctx.get(unit.o.p.value[lane]) for lane in range(lanes)])
            await ctx.tick()
            cycle += 1

    run_bench(unit, bench)
    return np.array(values).reshape(len(x), -1)[:, :n], cycles_in, cycles_out


@pytest.mark.parametrize(("lanes", "max_row", "n"), [(4, 100, 3), (4, 100, 41), (2, 24, 24)])
def test_one_beat_a_cycle(lanes, max_row, n):
    """Rows of one beat, of some, and the longest ones: no beat ever waits."""
    unit = AddNormUnit(lanes=lanes, max_row=max_row)
    beats = -(-n // lanes)
    m = 2 + 150 // beats
    x = np.random.default_rng(n).integers(-5000, 5000, (m, n))
    values, cycles_in, cycles_out = run_case(unit, x, rms=0, eps=9)
    np.testing.assert_array_equal(values, normalize(x, rms=False, eps=9)[0])
    assert cycles_in == list(range(m * beats))
    first = beats - 1 + unit.latency
    assert unit.latency == 23 + lanes.bit_length() // 2
    assert cycles_out == list(range(first, first + m * beats))


@pytest.mark.parametrize("n", [1, 2, 3, 15, 63, 64, 96])
def test_one_element_may_be_as_far_from_the_others_as_can_be(n):
    """A row as long as can be, of one largest and otherwise smallest numbers, or the reverse."""
    x = np.full((4, n), -(1 << 15))
    x[0, 0] = x[1, -1] = (1 << 15) - 1
    x[2:] = -1 - x[:2]
    for rms in (False, True):
        values, _, _ = run_case(AddNormUnit(lanes=3, max_row=n), x, rms=rms, eps=0)
        np.testing.assert_array_equal(values, normalize(x, rms=rms, eps=0)[0])


def test_the_longest_row_of_the_largest_variance():
    x = np.tile([-(1 << 15), (1 << 15) - 1], (1, 4096))
    eps = (1 << 56) - 1
    values, _, _ = run_case(AddNormUnit(lanes=8, max_row=8192), x, rms=False, eps=eps)
    np.testing.assert_array_equal(values, normalize(x, rms=False, eps=eps)[0])


def test_holds_what_the_buffer_can():
    """A stalled output stops the input without loss."""
    unit = AddNormUnit(lanes=1, max_row=3)
    x = np.random.default_rng(1).integers(-5000, 5000, (40, 3))
    values, cycles_in, cycles_out = run_case(
        unit, x, rms=1, eps=0, o_ready=lambda cycle: cycle > 200
    )
    np.testing.assert_array_equal(values, normalize(x, rms=True, eps=0)[0])
    assert cycles_out[0] == 201
    assert 3 + unit.latency - 1 <= sum(cycle <= 200 for cycle in cycles_in) < 120


def test_statistics_of_no_variance():
    """A lane gives 0 where statistics have no mantissa, whatever the shift."""
    lane = NormalizeLane(max_row=1)
    values = []

    async def bench(ctx):
        for name, value in {"scaled": -7, "total": -7, "mantissa": 0, "right": 16}.items():
            ctx.set(getattr(lane, name), value)
        await ctx.tick().repeat(lane.latency)
        values.append(ctx.get(lane.value))

    run_bench(lane, bench)
    assert values == [0]


@pytest.mark.parametrize(
    ("lanes", "max_row", "message"),
    [
        (0, 5, "Norm lanes must be a positive integer, not 0"),
        (1, 0, "Norm max_row must be from 1 to 8192, not 0"),
        (1, 8193, "Norm max_row must be from 1 to 8192, not 8193"),
    ],
)
def test_refuses(lanes, max_row, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AddNormUnit(lanes=lanes, max_row=max_row)
