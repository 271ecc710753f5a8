"""The softmax unit: circuit against golden model, its latency and its throughput."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.sim.softmax import row_weights, softmax
from celosia.tb.benches.simulate import simulate


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


def run_case(unit, beats, rng, stall=0.0, *others):
    """Check every output beat; return the cycles in which beats were taken and brought.

    Beats of a unit with factors have their row's number, too. Testbenches of ``others`` run beside.
    """
    cycles_in, cycles_out = [], []

    async def drive(ctx):
        cycle = 0
        for q, mask, last, _, *number in beats:
            offered = False
            while True:
                offered = offered or rng.random() >= stall
                ctx.set(unit.i.valid, offered)
                more = {"number": number[0]} if number else {}
                ctx.set(unit.i.payload, {"q": q, "mask": mask, "last": last, **more})
                *_, ready = await ctx.tick().sample(unit.i.ready)
                cycle += 1
                if offered and ready:
                    cycles_in.append(cycle)
                    break
        ctx.set(unit.i.valid, 0)

    async def check(ctx):
        cycle = 0
        for _, mask, last, p, *_ in beats:
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
    for other in others:
        simulator.add_testbench(other)
    simulator.run()
    return cycles_in, cycles_out


@pytest.mark.parametrize(("lanes", "max_row"), [(1, 1), (1, 9), (2, 7), (3, 20), (5, 33), (8, 32)])
def test_circuit_equals_model(lanes, max_row):
    rng = np.random.default_rng(lanes)
    lengths = [max_row, 1, *rng.integers(1, max_row + 1, 40)]
    run_case(SoftmaxUnit(lanes, max_row), make_rows(lengths, lanes, rng), rng, stall=0.3)


def test_the_longest_row():
    rng = np.random.default_rng(3)
    run_case(SoftmaxUnit(8, 8192), make_rows([8192, 5000, 1], 8, rng), rng)


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


@pytest.mark.parametrize(("lanes", "max_row"), [(1, 1), (1, 9), (3, 20), (4, 512), (8, 32)])
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_deferred_rows_leave_their_factors(lanes, max_row, stall):
    rng = np.random.default_rng(lanes)
    lengths = [max_row, 1, *rng.integers(1, min(max_row, 60) + 1, 40)]
    unit = SoftmaxUnit(lanes, max_row, factors=37)
    beats, factors = make_deferred(lengths, lanes, rng)
    written = []

    async def keep(ctx):
        while len(written) < len(factors):
            *_, valid, got = await ctx.tick().sample(unit.factor.valid, unit.factor.payload)
            if valid:
                written.append((got.number, got.factor.mantissa, got.factor.right))

    cycles_in, cycles_out = run_case(unit, beats, rng, stall, keep)
    assert [(n, mantissa, right * (mantissa > 0)) for n, mantissa, right in written] == factors
    if not stall:
        first = -(-max_row // lanes)
        assert cycles_out[0] - cycles_in[first - 1] == unit.latency
        assert unit.latency == (lanes - 1).bit_length() + 8
        # Many short rows wait behind a much longer one.
        assert max_row > 60 or cycles_in == list(range(1, len(beats) + 1))


def make_deferred(lengths, lanes, rng):
    """Return the beats of random rows as (q, mask, last, weights, number), and their factors."""
    beats, factors = [], []
    for q, mask, last, _ in make_rows(lengths, lanes, rng):
        beats.append((q, mask, last))
    begin, beats_out = 0, []
    for length in lengths:
        row = beats[begin : begin + -(-int(length) // lanes)]
        number = int(rng.integers(37))
        keep = np.array([[mask >> lane & 1 for lane in range(lanes)] for _, mask, _ in row], bool)
        q = np.array([q for q, _, _ in row])
        weights, mantissa, right = row_weights(q.reshape(-1), keep.reshape(-1))
        factors.append((number, int(mantissa[0]), int(right[0])))
        for beat, each in zip(row, weights.reshape(-1, lanes).tolist(), strict=True):
            beats_out.append((*beat, each, number))
        begin += len(row)
    return beats_out, factors


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
        bench="celosia.tb.benches.bench_softmax",
        simulator=simulator,
        seed=5,
        parameters=parameters,
    )
