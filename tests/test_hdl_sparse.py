"""The zero-skip unit: exact sums, and cycles."""

import re
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import signed
from amaranth.sim import Simulator

from arch.presets import PRESETS
from hdl.sparse.sparse import SparseMac
from hdl.sparse.sparse_lane import SparseShape
from sim.sparse import compress, count_cycles, multiply
from tb.bench import unpack
from tb.bench_sparse import pack_beats, pack_vector, random_problem
from tb.simulate import simulate
from tb.sparse_bench import bench_sparse

SIMULATORS = ["verilator", "icarus"]
MEASURED = PRESETS["tiny"].replace(lanes=3, fused=False, max_k=100)
"""One configuration for all that runs the Verilog, so that it is built once."""


def run_case(problems, *, stall=0.0, seed=0, **parameters):
    """Run problems (w, x) after each other, compare all sums, and return the cycles.

    The cycles are counted from the first beat of weights taken to the last sum taken. Without
    stalls the first vector is loaded before the first weight is offered.
    """
    unit = SparseMac(**parameters)
    shape = unit.parameters
    beats = [compress(w, window=shape.window, values=shape.values) for w, _ in problems]
    vectors = [word for _, x in problems for word in pack_vector(shape, x)]
    weights = [payload for each in beats for payload in pack_beats(shape, each)]
    first = len(pack_vector(shape, problems[0][1]))
    expected = [
        int(y) for each, (_, x) in zip(beats, problems, strict=True) for y in multiply(each, x)
    ]
    sums = []
    times = {}

    def driver(port, payloads, generator, wait):
        async def drive(ctx):
            for _ in range(wait):
                await ctx.tick()
            for payload in payloads:
                while stall and generator.random() < stall:
                    await ctx.tick()
                ctx.set(port.payload.as_value(), payload)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)

        return drive

    async def watch(ctx):
        cycle = 0
        async for _, _, valid, ready in ctx.tick().sample(unit.i.valid, unit.i.ready):
            if valid and ready:
                times.setdefault("first", cycle)
            times["now"] = cycle
            cycle += 1

    async def receive(ctx):
        generator = np.random.default_rng(seed + 2)
        patience = 1000 + 10 * sum(int(each.count.sum()) + each.count.size for each in beats)
        while len(sums) < len(expected):
            assert times.get("now", 0) < patience
            ready = not stall or generator.random() >= stall
            ctx.set(unit.o.ready, ready)
            _, _, valid, bits = await ctx.tick().sample(unit.o.valid, unit.o.payload)
            if ready and valid:
                sums.append(unpack(signed(shape.acc_width), bits))
        # Nothing comes after the last row.
        times["last"] = times["now"]
        ctx.set(unit.o.ready, 1)
        for _ in range(20):
            _, _, valid = await ctx.tick().sample(unit.o.valid)
            assert not valid

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_process(watch)
    generators = [np.random.default_rng(seed), np.random.default_rng(seed + 1)]
    simulator.add_testbench(driver(unit.i_vector, vectors, generators[0], 0), background=True)
    wait = 0 if stall else first
    simulator.add_testbench(driver(unit.i, weights, generators[1], wait), background=True)
    simulator.add_testbench(receive)
    simulator.run()
    assert sums == expected
    return times["last"] - times["first"] + 1


def random_case(n, k, sparsity, *, seed=0, operand_width=8, **rest):
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, n, k, sparsity, operand_width)
    return run_case([problem], seed=seed, operand_width=operand_width, **rest)


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("lanes", [1, 3, 4, 8])
def test_every_sparsity_is_exact_under_stalls(lanes, sparsity):
    random_case(6, 45, sparsity, lanes=lanes, k_max=64, stall=0.3, seed=lanes)


@pytest.mark.parametrize(
    ("n", "k", "parameters"),
    [
        (1, 1, {"lanes": 1, "k_max": 1}),
        (5, 1, {"lanes": 3, "k_max": 1}),
        (4, 7, {"lanes": 2, "k_max": 7, "window": 1, "values": 1}),
        (4, 33, {"lanes": 2, "k_max": 100, "window": 5, "values": 5, "load": 1}),
        (3, 50, {"lanes": 5, "k_max": 50, "window": 64, "values": 3, "load": 16}),
        (9, 20, {"lanes": 4, "k_max": 20, "operand_width": 2, "acc_width": 8}),
        (9, 20, {"lanes": 3, "k_max": 21, "operand_width": 5, "acc_width": 14}),
    ],
)
def test_every_parameter_varies(n, k, parameters):
    for sparsity in (0.0, 0.6):
        random_case(n, k, sparsity, seed=n, **parameters)
        random_case(n, k, sparsity, seed=n, stall=0.4, **parameters)


def test_extreme_sums():
    low, high = np.full(64, -128), np.full(64, 127)
    w = np.stack([low, high, low, np.zeros_like(low)])
    # The narrowest accumulator that is allowed, filled to its end.
    run_case([(w, low), (w, high)], lanes=4, k_max=64, acc_width=22)


def test_rows_of_zeros_anywhere():
    w = np.zeros((9, 30), dtype=np.int64)
    w[[1, 4, 5], [29, 0, 15]] = [-128, 127, 1]
    run_case([(w, np.arange(-15, 15))] * 3, lanes=3, k_max=30)
    # Sums that are left over in the lanes must not get into later rows of zeros.
    for stall in (0.0, 0.3):
        random_case(150, 30, 0.97, lanes=2, k_max=30, stall=stall)


def test_matrices_follow_each_other_while_vectors_load():
    generator = np.random.default_rng(5)
    problems = [
        random_problem(generator, n, k, sparsity, 8)
        for n, k, sparsity in [(3, 40, 0.5), (1, 9, 0.0), (2, 64, 1.0), (1, 1, 0.0), (4, 33, 0.9)]
    ]
    run_case(problems, lanes=4, k_max=64, stall=0.5)
    # Vectors of 16 words load while matrices of 64 cycles run: no cycle is lost between them.
    problems = [random_problem(generator, 4, 64, 0.0, 8) for _ in range(4)]
    assert run_case(problems, lanes=4, k_max=64) == 4 * 64 + 9


@pytest.mark.parametrize(
    ("lanes", "n", "k", "sparsity"),
    [(1, 3, 40, 0.5), (3, 10, 64, 0.8), (4, 20, 256, 0.9), (8, 30, 100, 0.9), (4, 12, 300, 0.98)],
)
def test_cycles_are_those_of_the_schedule(lanes, n, k, sparsity):
    for seed in range(2):
        w, x = random_problem(np.random.default_rng(seed), n, k, sparsity, 8)
        parameters = SparseShape(lanes=lanes, k_max=512)
        beats = compress(w, window=parameters.window, values=parameters.values)
        cycles = run_case([(w, x)], lanes=lanes, k_max=512)
        assert cycles == count_cycles(beats.count, lanes)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8])
def test_the_merger_never_limits(lanes):
    # Beats of very unequal lengths: sums wait for older ones in other lanes, the input does not.
    generator = np.random.default_rng(lanes)
    w = np.zeros((60, 512), dtype=np.int64)
    for row in w:
        row[: generator.choice([0, 1, 2 * lanes, 2 * lanes + 1])] = 1
    shape = SparseShape(lanes=lanes, k_max=512)
    beats = compress(w, window=shape.window, values=shape.values)
    cycles = run_case([(w, np.arange(512) % 100)], lanes=lanes, k_max=512)
    assert cycles == count_cycles(beats.count, lanes)


@pytest.mark.parametrize("lanes", [1, 3, 4, 8])
@pytest.mark.parametrize("k", [8, 17, 63, 256])
def test_dense_rows_take_at_most_5_percent_more_than_a_product_per_lane_and_cycle(lanes, k):
    n = -(-600 * lanes // k)
    shape = SparseShape(lanes=lanes, k_max=256)
    beats = compress(np.ones((n, k)), window=shape.window, values=shape.values)
    assert count_cycles(beats.count, lanes) <= 1.05 * n * k / lanes


def test_one_dense_row_among_rows_of_zeros_occupies_all_lanes():
    w = np.zeros((17, 512), dtype=np.int64)
    w[8] = 3
    x = np.arange(512) % 256 - 128
    cycles = run_case([(w, x)], lanes=4, k_max=512)
    # The products over all lanes, a cycle for each other row, and a latency.
    assert cycles <= 512 / 4 + 16 + 10
    assert cycles == count_cycles([0] * 8 + [8] * 64 + [0] * 8, 4)


def test_90_percent_zeros_take_a_fifth_of_the_cycles():
    dense = random_case(16, 256, 0.0, lanes=4, k_max=256)
    sparse = random_case(16, 256, 0.9, lanes=4, k_max=256)
    assert dense <= 1.05 * 16 * 256 / 4
    assert dense >= 5 * sparse


def test_a_beat_that_breaks_the_rules_does_not_stop_the_unit():
    shape = SparseShape(lanes=2, k_max=16)
    unit = SparseMac(lanes=2, k_max=16)
    sums = []

    async def bench(ctx):
        ctx.set(unit.i_vector.payload, {"last": 1, "values": [1, 2]})
        ctx.set(unit.i_vector.valid, 1)
        await ctx.tick().until(unit.i_vector.ready)
        ctx.set(unit.i_vector.valid, 0)
        ctx.set(unit.o.ready, 1)
        ctx.set(unit.i.valid, 1)
        wrong = {"row_last": 1, "count": 7, "base": 15, "bitmap": 0x8000, "values": [1] * 4}
        good = {"row_last": 1, "matrix_last": 1, "count": 2, "bitmap": 3, "values": [5, 6, 0, 0]}
        for payload in (wrong, good):
            ctx.set(unit.i.payload, payload)
            await ctx.tick().until(unit.i.ready)
        ctx.set(unit.i.valid, 0)
        for _ in range(2):
            sums.extend(await ctx.tick().sample(unit.o.payload).until(unit.o.valid))

    assert shape.values == 4
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run_until(100e-6)
    assert len(sums) == 2
    assert sums[1] == 5 * 1 + 6 * 2


def test_defaults_follow_from_lanes_and_k_max():
    shape = SparseShape(lanes=3, k_max=100)
    assert (shape.window, shape.values, shape.load) == (48, 6, 4)
    shape = SparseShape(lanes=8, k_max=5)
    assert (shape.window, shape.values, shape.load) == (5, 5, 8)


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_every_preset_has_a_unit(config):
    unit = SparseMac.from_config(config)
    assert unit.parameters.lanes == config.lanes
    assert unit.parameters.k_max == min(config.max_k, config.scratchpad_bytes)
    Simulator(unit)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"lanes": 0}, ValueError, "Sparse lanes must be at least 1, not 0"),
        ({"lanes": 2.0}, TypeError, "Sparse lanes must be an integer, not 2.0"),
        ({"k_max": True}, TypeError, "Sparse k_max must be an integer, not True"),
        ({"k_max": -1}, ValueError, "Sparse k_max must be at least 1, not -1"),
        ({"window": 0}, ValueError, "Sparse window must be at least 1, not 0"),
        ({"values": 0}, ValueError, "Sparse values must be at least 1, not 0"),
        ({"load": 0}, ValueError, "Sparse load must be at least 1, not 0"),
        ({"load": 3}, ValueError, "Sparse load must be a power of two, not 3"),
        ({"operand_width": 1}, ValueError, "Sparse operand_width must be at least 2, not 1"),
        ({"operand_width": 9}, ValueError, "Sparse operand_width must be at most 8, not 9"),
        ({"acc_width": "32"}, TypeError, "Sparse acc_width must be an integer, not '32'"),
        (
            {"window": 4, "values": 5},
            ValueError,
            "Sparse values must be at most window, but values is 5 and window is 4",
        ),
        (
            {"acc_width": 21},
            ValueError,
            "Sparse acc_width must be at least 22 so that a sum of k_max = 64 products of 8-bit "
            "operands cannot overflow, but acc_width is 21",
        ),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        SparseShape(**({"lanes": 4, "k_max": 64} | parameters))


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_random_problems_on_the_verilog(simulator):
    unit = SparseMac.from_config(MEASURED)
    problems = [(5, 70, 0.9), (1, 1, 0.0), (3, 33, 0.0), (4, 50, 1.0), (6, 64, 0.5)]
    given = {"unit": unit.parameters.arguments, "problems": problems, "stall": 0.3}
    simulate(unit, bench="tb.bench_sparse", simulator=simulator, seed=3, parameters=given)


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_measured_on_the_verilog(simulator):
    dense = bench_sparse(MEASURED, 64, 30, 0.0, simulator, 1)
    sparse = bench_sparse(MEASURED, 64, 30, 0.9, simulator, 1)
    assert dense["mismatches"] == sparse["mismatches"] == 0
    assert dense["cycles"] == dense["predicted_cycles"] <= 1.05 * 640
    assert sparse["cycles"] == sparse["predicted_cycles"] <= dense["cycles"] / 5
    assert (dense["products"], dense["ideal_cycles"], dense["load_cycles"]) == (1920, 640, 16)
    assert dense["utilization"] == 1920 / (3 * dense["cycles"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 0.5), "Sparse k must be from 1 to 2048 for small, not 0"),
        ((2049, 1, 0.5), "Sparse k must be from 1 to 2048 for small, not 2049"),
        ((1, 0, 0.5), "Sparse n must be at least 1, not 0"),
        ((1, 1, 1.5), "Sparsity must be from 0 to 1, not 1.5"),
    ],
)
def test_bad_measurements(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bench_sparse(PRESETS["small"], *arguments, "verilator", 0)


def test_the_documented_cycles():
    page = Path(__file__).parents[1] / "docs" / "units" / "sparse.md"
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) % \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert rows
    for lanes, zeros, ideal, cycles in [map(int, row) for row in rows]:
        w, _ = random_problem(np.random.default_rng(1), 64, 256, zeros / 100, 8)
        shape = SparseShape(lanes=lanes, k_max=2048)
        beats = compress(w, window=shape.window, values=shape.values)
        assert -(-np.count_nonzero(w) // lanes) == ideal
        assert count_cycles(beats.count, lanes) == cycles
