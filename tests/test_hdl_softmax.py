"""The softmax unit: circuit against golden model, its latency and its throughput."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.functions.softmax import SoftmaxUnit
from sim.softmax import softmax
from tb.simulate import simulate


def make_rows(lengths, lanes, rng):
    """Return the beats of random rows as (q, mask, last, p)."""
    beats = []
    for length in lengths:
        count = -(-int(length) // lanes)
        low = rng.choice([-32768, -3000])
        q = rng.integers(low, -low, count * lanes).reshape(count, lanes)
        mask = rng.random((count, lanes)) < rng.choice([0.0, 0.6, 1.0])
        mask.reshape(-1)[length:] = False
        p = softmax(q.reshape(-1), mask.reshape(-1)).reshape(count, lanes)
        bits = (mask << np.arange(lanes)).sum(axis=1)
        for beat in range(count):
            beats.append((q[beat].tolist(), int(bits[beat]), beat == count - 1, p[beat].tolist()))
    return beats


def run_case(unit, beats, rng, stall=0.0):
    """Check every output beat; return the cycles in which beats were taken and brought."""
    cycles_in, cycles_out = [], []

    async def drive(ctx):
        cycle = 0
        for q, mask, last, _ in beats:
            offered = False
            while True:
                offered = offered or rng.random() >= stall
                ctx.set(unit.i.valid, offered)
                ctx.set(unit.i.payload, {"q": q, "mask": mask, "last": last})
                *_, ready = await ctx.tick().sample(unit.i.ready)
                cycle += 1
                if offered and ready:
                    cycles_in.append(cycle)
                    break
        ctx.set(unit.i.valid, 0)

    async def check(ctx):
        cycle = 0
        for _, mask, last, p in beats:
            while True:
                takes = rng.random() >= stall
                ctx.set(unit.o.ready, takes)
                *_, valid, got = await ctx.tick().sample(unit.o.valid, unit.o.payload)
                cycle += 1
                if takes and valid:
                    break
            cycles_out.append(cycle)
            assert (list(got.p), got.mask, got.last) == (p, mask, last)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(check)
    simulator.run()
    return cycles_in, cycles_out


@pytest.mark.parametrize(("lanes", "max_row"), [(1, 1), (1, 9), (2, 7), (3, 20), (5, 33), (8, 32)])
def test_circuit_equals_model(lanes, max_row):
    rng = np.random.default_rng(lanes)
    lengths = [max_row, 1, *rng.integers(1, max_row + 1, 40)]
    run_case(SoftmaxUnit(lanes, max_row), make_rows(lengths, lanes, rng), rng, stall=0.3)


@pytest.mark.parametrize(("lanes", "max_row"), [(1, 8), (3, 40), (4, 512)])
def test_latency_is_the_formula(lanes, max_row):
    rng = np.random.default_rng(2)
    for length in (1, max_row):
        unit = SoftmaxUnit(lanes, max_row)
        cycles_in, cycles_out = run_case(unit, make_rows([length], lanes, rng), rng)
        assert cycles_out[0] - cycles_in[-1] == unit.latency + len(cycles_in) - 1
        largest = lanes * -(-max_row // lanes)
        sum_width = 28 + largest.bit_length()
        shifts = -(-(sum_width - 1).bit_length() // 2)
        assert unit.latency == 2 * (lanes - 1).bit_length() + shifts + 19


@pytest.mark.parametrize("lengths", [[1] * 120, [40] * 8, [40, 1, 1, 17, 2, 40, 40, 9] * 5])
def test_every_cycle_takes_and_brings_a_beat(lengths):
    lanes = 4
    rng = np.random.default_rng(3)
    beats = make_rows(lengths, lanes, rng)
    cycles_in, cycles_out = run_case(SoftmaxUnit(lanes, 40), beats, rng)
    assert cycles_in == list(range(1, len(beats) + 1))
    if len(set(lengths)) == 1:
        assert cycles_out[-1] - cycles_out[0] == len(beats) - 1


def test_parameters_are_checked():
    message = "^Softmax lanes must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        SoftmaxUnit(0, 8)
    message = "^Softmax max_row must be from 1 to 65536 elements, not 0$"
    with pytest.raises(ValueError, match=message):
        SoftmaxUnit(1, 0)


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_bench(simulator):
    parameters = {"lanes": 3, "max_row": 70}
    simulate(
        SoftmaxUnit(**parameters),
        bench="tb.bench_softmax",
        simulator=simulator,
        seed=5,
        parameters=parameters,
    )
