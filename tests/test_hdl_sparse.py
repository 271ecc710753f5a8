"""The zero-skip unit: exact sums under both simulators, whatever waits, and its cycles."""

import json

import numpy as np
import pytest

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.latency import sparse_cycles
from celosia.arch.presets import PRESETS
from celosia.generators.studies.sparse_bench import bench_sparse
from celosia.generators.verilog.units import make_unit
from celosia.sim.interpreter import Interpreter
from celosia.sim.sparse import encode
from celosia.tb.benches.bench_sparse import random_weight
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.simulators import make_machine
from tests.support.longer import longer

CONFIG = PRESETS["tiny"].replace(sparse_lanes=2, sparse_depth=512)
"""One configuration for all that runs the Verilog, so that it is built once."""
PROBLEMS = [
    (1, 40, 9, 0.5),
    (3, 17, 5, 0.0),
    (2, 256, 7, 0.9),
    (1, 100, 3, 1.0),
    (2, 33, 19, 0.97),
    (1, 16, 8, 0.8),
]


def run_case(config, simulator, problems, seed=1, stall=0.0, report=None):
    parameters = {"config": config.fields(), "lanes": config.sparse_lanes, "problems": problems}
    parameters |= {"stall": stall} | ({"report": str(report)} if report else {})
    simulate(
        make_unit("sparse_unit", config),
        bench="celosia.tb.benches.bench_sparse",
        simulator=simulator,
        seed=seed,
        parameters=parameters,
    )


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_sums_are_exact(simulator, stall) -> None:
    run_case(CONFIG, simulator, PROBLEMS, seed=int(10 * stall), stall=stall)


@pytest.mark.parametrize(
    "fields",
    [
        {"zero_points": False, "operand_width": 8, "registered": True},
        {"rows": 5, "cols": 3, "sparse_lanes": 1, "acc_width": 28},
    ],
)
def test_other_machines(fields) -> None:
    run_case(CONFIG.replace(**fields), "verilator", PROBLEMS[:4], stall=0.2)


def test_cycles_are_those_of_the_formula(tmp_path) -> None:
    report = tmp_path / "report.json"
    problems = [(1, 256, 7, 0.9), (1, 40, 3, 0.0), (3, 64, 4, 0.5)]
    run_case(CONFIG, "verilator", problems, report=report)
    rng = np.random.default_rng(1)
    for (m, k, n, sparsity), cycles in zip(
        problems, json.loads(report.read_text())["cycles"], strict=True
    ):
        beats = encode(random_weight(rng, k, n, sparsity), 2, CONFIG.array.cols).size // 3 - 3
        # Lanes differ in how the last weights are dealt out, by a beat.
        assert abs(cycles - sparse_cycles(CONFIG, 2, m, k, n, beats)) <= 2 * m


@pytest.mark.parametrize(("simulator", "sparsity"), [("icarus", 0.8), *longer(("verilator", 0.9))])
def test_the_machine_runs_sparse_products(simulator, sparsity) -> None:
    result = bench_sparse(
        CONFIG,
        lambda config, size: make_machine(config, simulator, size),
        m=2,
        k=96,
        n=20,
        sparsity=sparsity,
    )
    assert result["mismatches"] == 0
    assert result["cycles"] < result["dense_cycles"]
    for name in ("", "dense_"):
        parted = result[f"{name}predicted_cycles"] - result[f"{name}total_cycles"]
        # Runs this short show each cycle of latency.
        assert abs(parted) <= 0.06 * result[f"{name}total_cycles"]
    # Zeros behind a lane's last weight are not passed.
    assert 0.8 < result["skipped"] / (2 * sparsity * 96 * 20) <= 1


def test_a_dense_matrix_is_the_arrays() -> None:
    result = bench_sparse(
        CONFIG,
        lambda config, size: make_machine(config, "golden", size),
        m=1,
        k=96,
        n=20,
        sparsity=0,
    )
    assert (result["chosen"], result["mismatches"], result["array_from_rows"]) == ("dense", 0, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 15}, r"needs k from 16 to sparse_depth = 512, not 15$"),
        ({"k": 513}, r"needs k from 16 to sparse_depth = 512, not 513$"),
        ({"beats": 0}, r"needs beats from 1 to 65535, not 0$"),
        ({"beats": 9000}, r"reads sp from 0 to 27008, but it has 16384$"),
    ],
)
def test_bad_steps_are_refused(changes, message) -> None:
    operands = {"m": 1, "k": 16, "n": 1, "beats": 1} | changes
    machine = Interpreter(CONFIG)
    machine.load_program(pack([Instruction(Opcode.SPARSE, operands), Instruction(Opcode.HALT)]))
    with pytest.raises(ValueError, match=message):
        machine.start()


def test_without_lanes_there_is_no_unit() -> None:
    machine = Interpreter(PRESETS["tiny"])
    operands = {"m": 1, "k": 16, "n": 1, "beats": 1}
    machine.load_program(pack([Instruction(Opcode.SPARSE, operands), Instruction(Opcode.HALT)]))
    with pytest.raises(ValueError, match=r"needs the unit sparse_lanes, which the configuration"):
        machine.start()
    with pytest.raises(ValueError, match=r"^Field sparse_lanes must be at most 5, whose entries"):
        PRESETS["tiny"].replace(sparse_lanes=6, lanes=4, scratchpad_bytes=16384)
