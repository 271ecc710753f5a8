"""The array with trees: exact sums of the lines before each vector, still registers at zeros."""

from collections import Counter
from typing import Any

import pytest

from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.generators.verilog.units import make_unit
from celosia.hdl.matrix.tree import TreeArray, TreeColumn
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from tests.support.longer import longer
from tests.support.toggles import Pairs, check_gating, count_toggles

ODD = {"rows": 5, "cols": 3}
BARE = {"zero_points": False, "operand_gating": False, "b_transpose": False}
PACKED = {"packed": True, "operand_width": 4, "acc_width": 24}
OVERLAPPING = {"packed": True}
PARTS = {"packed": True, "pass_width": 4, "zero_points": False, "operand_gating": False}
TERNARY = {"packed": False, "pass_width": 1}
LATE = {"registered": True}


@pytest.mark.parametrize(
    ("simulator", "changes", "rate", "latency"),
    [
        ("verilator", ODD | {"weight_depth": 9}, 1.0, 6),
        ("icarus", {"rows": 1, "cols": 1, "weight_depth": 3}, 1.0, 3),
        ("icarus", {"rows": 4, "cols": 4, "weight_depth": 5, **BARE}, 1.0, 5),
        ("icarus", PACKED | {"rows": 3, "cols": 5, **BARE}, 1.0, 5),
        ("icarus", OVERLAPPING | {"rows": 2, "cols": 2, "operand_width": 6, **BARE}, 0.9, 5),
        ("icarus", {**PARTS, "rows": 3, "cols": 5}, 1.0, 5),
        ("icarus", {**PARTS, **TERNARY, "rows": 5, "cols": 2, "weight_depth": 5}, 1.0, 6),
        ("icarus", {**ODD, **LATE, "weight_depth": 4}, 1.0, 6),
        ("icarus", {**PARTS, **LATE, "rows": 3, "cols": 4, "weight_depth": 11}, 0.9, 6),
        *longer(
            ("verilator", OVERLAPPING | {"rows": 8, "cols": 5, "weight_depth": 6, **BARE}, 0.8, 7),
            ("verilator", {**PARTS, "rows": 3, "cols": 5}, 1.0, 5),
            ("icarus", {"rows": 9, "cols": 2, "operand_width": 4, **BARE}, 0.9, 7),
            ("icarus", PACKED | {"rows": 1, "cols": 1}, 1.0, 3),
            ("icarus", PACKED | {"rows": 2, "cols": 6, "operand_width": 5, **BARE}, 1.0, 4),
            ("icarus", OVERLAPPING | {"rows": 2, "cols": 3, "operand_width": 5}, 1.0, 5),
            ("icarus", {**ODD, **LATE, "weight_depth": 9}, 0.8, 7),
            ("icarus", ODD, 0.5, 6),
            ("icarus", {"rows": 2, "cols": 7, "weight_depth": 3}, 0.8, 4),
            ("icarus", {"rows": 3, "cols": 2, "weight_depth": 8}, 0.9, 5),
            ("icarus", PACKED | {"rows": 3, "cols": 4}, 1.0, 5),
            ("icarus", PACKED | {"rows": 5, "cols": 3, "weight_depth": 6}, 0.7, 6),
            ("icarus", OVERLAPPING | {"rows": 3, "cols": 4}, 1.0, 6),
            ("icarus", OVERLAPPING | {"rows": 1, "cols": 1}, 1.0, 3),
            ("icarus", {**PARTS, "rows": 2, "cols": 4, "weight_depth": 6, "packed": False}, 1.0, 4),
            ("verilator", {**PARTS, **TERNARY, "rows": 1, "cols": 3}, 1.0, 3),
        ),
    ],
)
def test_sums_are_exact(simulator: str, changes: dict[str, int], rate: float, latency: int) -> None:
    changes = changes | {"array": "tree"}
    array = TreeArray(PRESETS["small"].replace(lanes=1, **changes).part(MatrixConfig))
    assert array.latency == latency
    settings = {"config": changes, "cycles": 700, "rate": rate, "latency": latency}
    simulate(
        array,
        bench="celosia.tb.benches.bench_systolic",
        simulator=simulator,
        seed=1,
        parameters=settings,
    )


def count_changes(operands: Pairs, gating: bool) -> Counter[str]:
    """Return how often each register of a column of one changes over (activation, weight) pairs.

    Slot 0 has the weight of even cycles, slot 1 that of odd ones, written a cycle ahead.
    """
    config = PRESETS["small"].replace(
        rows=1, cols=1, lanes=1, zero_points=False, operand_gating=gating
    )
    column = TreeColumn(config.part(MatrixConfig))
    sums = []

    async def bench(ctx):
        for cycle in range(len(operands) + 4):
            weight = operands[cycle][1] if cycle < len(operands) else 0
            a = operands[cycle - 2][0] if 2 <= cycle < len(operands) + 2 else 0
            ahead = operands[cycle - 1][0] if 1 <= cycle < len(operands) + 1 else 0
            ctx.set(column.strobe, 1)
            ctx.set(column.write_slot, cycle % 2)
            ctx.set(column.weights[0], weight % 256 | (weight != 0) << 8 if gating else weight)
            ctx.set(column.slot, (cycle - 1) % 2)
            ctx.set(column.a[0], a)
            if gating:
                ctx.set(column.live, ahead != 0)
            sums.append(ctx.get(column.o))
            await ctx.tick()

    toggles = count_toggles(column, bench)
    assert sums[4:] == [a * weight for a, weight in operands]
    return toggles


def test_no_operand_register_moves_at_a_zero_operand() -> None:
    check_gating(count_changes)


OTHERS = 17 + 6 * 3 + 3 * 5
"""Registers of the vector engine's front ends, of the sizes of six walks, and of what a sum begins
with in three columns of the accumulators."""


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        (LATE | {"weight_depth": 9}, 3 * 3 + 2 + 1 + OTHERS),
        ({"weight_depth": 9}, 0),
        *longer((LATE | {"weight_depth": 4}, OTHERS)),
    ],
)
def test_columns_that_are_far_have_registers_of_their_own(
    changes: dict[str, Any], kept: int
) -> None:
    config = PRESETS["small"].replace(
        **{"array": "tree", "rows": 4, "cols": 3, "lanes": 1, **BARE, **changes}
    )
    verilog = kept_verilog(make_unit("accelerator", config), "machine")
    # Slots of activations and of weights and strobes of each column, activations of either side,
    # weights of the second one; and what other units have near them.
    assert verilog.count("(* keep *)") == kept
