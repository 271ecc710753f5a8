"""The systolic array: exact sums at the earliest times that its contract allows."""

from collections import Counter

import pytest

from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.hdl.matrix.element import ProcessingElement
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer
from tests.support.toggles import Pairs, check_gating, count_toggles

ODD = {"rows": 5, "cols": 3}
BARE = {"zero_points": False, "operand_gating": False, "b_transpose": False}
PACKED = {"packed": True, "operand_width": 4, "acc_width": 24}
OVERLAPPING = {"packed": True}
PARTS = {"packed": True, "pass_width": 4, "zero_points": False, "operand_gating": False}
TERNARY = {"packed": False, "pass_width": 1}


@pytest.mark.parametrize(
    ("simulator", "changes", "rate"),
    [
        ("verilator", ODD, 1.0),
        ("icarus", {"rows": 1, "cols": 1, "weight_depth": 3}, 1.0),
        ("icarus", {"rows": 2, "cols": 7, "weight_depth": 3}, 0.8),
        ("icarus", PACKED | {"rows": 3, "cols": 5, **BARE}, 1.0),
        ("icarus", OVERLAPPING | {"rows": 3, "cols": 4}, 1.0),
        ("icarus", ODD | {"cols": 4, "sleep": True, "weight_depth": 6, **BARE}, 0.6),
        ("icarus", {**PARTS, "rows": 3, "cols": 5}, 1.0),
        ("icarus", {**PARTS, **TERNARY, "rows": 5, "cols": 2, "weight_depth": 5}, 1.0),
        *longer(
            ("icarus", {"rows": 4, "cols": 4, "weight_depth": 5, **BARE}, 1.0),
            ("icarus", {"rows": 3, "cols": 5, "operand_width": 4, **BARE}, 0.9),
            ("icarus", PACKED | {"rows": 1, "cols": 1}, 1.0),
            ("icarus", PACKED | {"rows": 2, "cols": 6, "operand_width": 5, **BARE}, 1.0),
            ("icarus", OVERLAPPING | {"rows": 2, "cols": 2, "operand_width": 6}, 1.0),
            ("verilator", OVERLAPPING | {"rows": 5, "cols": 5, "sleep": True}, 0.8),
            ("verilator", {**PARTS, "rows": 3, "cols": 5}, 1.0),
            ("verilator", ODD, 0.5),
            ("icarus", ODD, 1.0),
            ("icarus", {"rows": 6, "cols": 4, "weight_depth": 16}, 1.0),
            ("icarus", PACKED | {"rows": 3, "cols": 4}, 1.0),
            ("icarus", PACKED | {"rows": 5, "cols": 3, "weight_depth": 6}, 0.7),
            ("icarus", OVERLAPPING | {"rows": 3, "cols": 3, **BARE}, 0.9),
            ("icarus", OVERLAPPING | {"rows": 1, "cols": 1}, 1.0),
            ("verilator", ODD | {"cols": 5, "sleep": True}, 1.0),
            ("icarus", PACKED | {"rows": 3, "cols": 5, "sleep": True}, 0.9),
            ("icarus", {**PARTS, "rows": 2, "cols": 4, "weight_depth": 6, "packed": False}, 1.0),
            ("verilator", {**PARTS, **TERNARY, "rows": 1, "cols": 3}, 1.0),
        ),
    ],
)
def test_sums_are_exact(simulator: str, changes: dict[str, int], rate: float) -> None:
    config = PRESETS["small"].replace(lanes=1, **changes)
    array = SystolicArray(config.part(MatrixConfig))
    settings = {"config": changes, "cycles": 700, "rate": rate, "latency": array.latency}
    simulate(
        array,
        bench="celosia.tb.benches.bench_systolic",
        simulator=simulator,
        seed=1,
        parameters=settings,
    )


def count_changes(operands: Pairs, gating: bool) -> Counter[str]:
    """Return how often each register of an element changes over (activation, weight) pairs.

    Slot 0 has the weight of even cycles, slot 1 that of odd ones, written a cycle ahead.
    """
    element = ProcessingElement(
        weight_depth=2, width=8, sum_i_width=0, sum_o_width=16, gating=gating, transpose=False
    )
    sums = []

    async def bench(ctx):
        for cycle in range(len(operands) + 5):
            weight = operands[cycle][1] if cycle < len(operands) else 0
            a = operands[cycle - 1][0] if 1 <= cycle < len(operands) + 1 else 0
            ctx.set(element.row_strobe_i, 1)
            ctx.set(element.row_slot_i, cycle % 2)
            ctx.set(element.column_data, weight)
            ctx.set(element.a_i, a)
            ctx.set(element.slot_i, (cycle - 1) % 2)
            if gating:
                ctx.set(element.column_live, weight != 0)
                ctx.set(element.live_i, a != 0)
            sums.append(ctx.get(element.sum_o))
            await ctx.tick()

    toggles = count_toggles(element, bench)
    assert sums[5:] == [a * weight for a, weight in operands]
    return toggles


def test_no_operand_register_moves_at_a_zero_operand() -> None:
    zero_weights, zero_activations = check_gating(count_changes)
    assert zero_weights["a_o"] > 30
    assert zero_activations["a_o"] == 1


def test_operands_stand_still_between_two_products() -> None:
    changes = count_changes([(3, 5), *[(0, 7), (9, 0)] * 10, (4, 6)], gating=True)
    assert changes["left"] == changes["right"] == 3
    # The activations that are not zero follow each other; the zeros between them never come.
    assert changes["a_o"] == 1 + 3
