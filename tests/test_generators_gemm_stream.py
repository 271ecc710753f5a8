"""Streamed products: the golden machine against plain NumPy, tokens proven, loops found."""

import dataclasses

import numpy as np
import pytest

from arch.instruction import Instruction, pack
from arch.isa import Opcode
from arch.presets import PRESETS
from generators.bench.gemm import TooLargeError, compile_gemm
from generators.bench.gemm_bench import compile_product, expected_result, random_gemm, run_program
from generators.bench.gemm_stream import compile_stream, plans
from generators.program.roll import roll
from sim.checker import check
from sim.flow import run
from sim.interpreter import Interpreter


@pytest.mark.parametrize(
    ("preset", "changes", "shape"),
    [
        ("tiny", {}, (20, 40, 300)),
        ("tiny", {}, (1, 1000, 90)),
        ("tiny", {"scratchpad_banks": 1}, (40, 333, 70)),
        ("odd", {}, (23, 150, 310)),
        ("small", {}, (65, 700, 200)),
        ("small", {"acc_depth": 256}, (130, 256, 100)),
        ("wide", {}, (60, 900, 200)),
        ("medium", {}, (128, 2048, 256)),
    ],
)
def test_streamed_products_are_exact(preset: str, changes: dict[str, int], shape) -> None:
    config = PRESETS[preset].replace(**changes)
    m, k, n = shape
    for transpose in (False, True):
        rng = np.random.default_rng(3)
        gemm = random_gemm(config, rng, m=m, k=k, n=n, b_transpose=transpose)
        program = compile_stream(gemm, config)
        check(program.words, config)
        found, report = run_program(program, Interpreter(config))
        np.testing.assert_array_equal(found, expected_result(gemm, config))
        assert report.counters["macs"] == m * k * n


def test_every_plan_lies_in_its_memories() -> None:
    config = PRESETS["small"]
    gemm = random_gemm(config, np.random.default_rng(4), m=65, k=200, n=90)
    found = plans(gemm, config)
    assert len({(plan.resident, plan.regions) for plan in found}) == 4
    assert [plan.cycles for plan in found] == sorted(plan.cycles for plan in found)
    for plan in found:
        chunk, panel = min(plan.chunk, plan.k), min(plan.panel, plan.n)
        a_size = plan.m * (plan.k if plan.resident else chunk)
        sizes = {"A": a_size, "B": chunk * panel, "C": plan.m * panel}
        cells = np.zeros(config.scratchpad_bytes, np.int64)
        for name, addr in plan.addresses.items():
            if plan.resident and name == "A1":
                continue
            size = sizes[name[0]]
            cells[addr : addr + size] += 1
            assert addr + size <= config.scratchpad_bytes
        assert cells.max() == 1


def test_products_that_fit_are_not_streamed() -> None:
    config = PRESETS["tiny"]
    small, large = (
        random_gemm(config, np.random.default_rng(5), m=m, k=80, n=100) for m in (4, 120)
    )
    assert compile_product(small, config) == compile_gemm(small, config)
    assert compile_product(large, config).load_pc is None
    skipping = config.replace(sparse_lanes=2)
    sparse = random_gemm(skipping, np.random.default_rng(5), m=2, k=80, n=200, sparsity=0.1)
    with pytest.raises(TooLargeError, match="Tensor B of 21609 bytes does not fit"):
        compile_product(dataclasses.replace(sparse, sparse=True), skipping)


@pytest.mark.parametrize(
    ("changes", "shape", "flags", "message"),
    [
        (
            {"param_depth": 2},
            (4, 4, 24),
            {},
            "The product needs 3 parameter words, but param_depth is 2",
        ),
        (
            {"acc_depth": 2},
            (4, 4, 4),
            {},
            "No way to stream a product of m = 4, k = 4 and n = 4 fits configuration small",
        ),
    ],
)
def test_refusals(changes, shape, flags, message) -> None:
    config = PRESETS["small"].replace(**changes)
    m, k, n = shape
    gemm = random_gemm(config, np.random.default_rng(6), m=m, k=k, n=n, **flags)
    with pytest.raises(ValueError, match=r".") as caught:
        compile_stream(gemm, config)
    assert str(caught.value) == message


def steps_of(program: list[Instruction]) -> list[tuple]:
    """Return what a program does, step by step."""
    words = pack([*program, Instruction(Opcode.HALT)])
    return [(step.opcode, dict(step.operands), step.flags, step.pop) for step in run(words)]


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize("special", [(), (0,), (0, 1, 8), (4,)])
def test_a_rolled_program_does_the_same(period: int, special: tuple[int, ...]) -> None:
    steps = [
        [
            Instruction(
                Opcode.PARAMS,
                {"i_addr": 16 * (step % period) + 48 * step, "n": 9 if step in special else 1},
            ),
            Instruction(Opcode.PARAMS, {"i_addr": 7, "params": 5 * step}),
        ]
        for step in range(9)
    ]
    flat = [instruction for step in steps for instruction in step]
    rolled = roll(steps)
    assert steps_of(rolled) == steps_of(flat)
    looped = any(instruction.opcode == Opcode.LOOP for instruction in rolled)
    assert looped or period == 3 or special == (4,)
