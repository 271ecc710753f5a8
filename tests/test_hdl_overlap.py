"""Conditions under which two commands of the vector engine overlap."""

import pytest

from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.functions.row_factors import RowFactors
from celosia.hdl.vector.front_ends import FrontEnds
from celosia.hdl.vector.kept_factors import KeptFactors
from celosia.hdl.vector.overlap import Overlap
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer
from tests.support.simulation import run_bench

FACTORS = PRESETS["odd"].replace(row_factors=8, multiplier_width=16, norm=True, softmax=True)


def run_case(component, config, bench, simulator="icarus", **parameters):
    simulate(
        component,
        bench=bench,
        simulator=simulator,
        seed=3,
        parameters={"config": config.fields(), **parameters},
    )


@pytest.mark.parametrize("registered", [False, True])
def test_commands_overlap(registered):
    config = PRESETS["story"].replace(registered=registered, fused=True)
    overlap = Overlap(stages=config.stages, fused=True)
    run_case(overlap, config, "celosia.tb.benches.bench_overlap", commands=200)


def test_factors_are_owed_to_the_last():
    factors = KeptFactors(rows=FACTORS.row_factors, norm=True, softmax=True)
    run_case(factors, FACTORS, "celosia.tb.benches.bench_kept_factors", commands=150)


@pytest.mark.parametrize("lanes", [1, 4])
def test_factors_of_rows(lanes):
    unit = RowFactors(lanes=lanes, max_row=9)
    settings = {"lanes": lanes, "max_row": 9, "commands": 12, "stall": 0.3}
    simulate(
        unit,
        bench="celosia.tb.benches.bench_row_factors",
        simulator="icarus",
        seed=3,
        parameters=settings,
    )


TINY = PRESETS["tiny"].replace(lanes=2, fused=True)


@pytest.mark.parametrize(
    "config",
    [
        TINY.replace(registered=True),
        TINY.replace(softmax_lanes=4),
        TINY.replace(row_factors=8, multiplier_width=16),
        FACTORS,
        *longer(PRESETS["story"].replace(registered=True, fused=True)),
    ],
    ids=["registered", "wide softmax", "fused factors", "factors", "story"],
)
def test_front_ends_take_their_commands(config):
    bench = "celosia.tb.benches.bench_front_ends"
    run_case(FrontEnds(config.part(VectorConfig)), config, bench, commands=30, stall=0.3)


@pytest.mark.parametrize("registered", [False, True])
def test_sums_are_taken_by_commands_that_drain_alone(registered):
    """Remaining sums are not lost to a command that reads the scratchpad."""
    config = PRESETS["tiny"].replace(registered=registered, norm=False)
    unit = FrontEnds(config.part(VectorConfig))

    async def bench(ctx):
        ctx.set(unit.opcode.softmax, 1)
        ctx.set(unit.command.opcode, Opcode.SOFTMAX)
        ctx.set(unit.o.ready, 1)
        for drains in (0, 1, 0, 1):
            ctx.set(unit.flag.drain, drains)
            ctx.set(unit.drained.valid, 0)
            for _ in range(3):
                await ctx.tick()
            ctx.set(unit.drained.valid, 1)
            for _ in range(4):
                assert ctx.get(unit.drained.ready) == drains
                await ctx.tick()

    run_bench(unit, bench)
