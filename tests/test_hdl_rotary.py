"""The rotary unit: a bench under both simulators, and its refusals."""

import re

import pytest

from celosia.hdl.functions.rotary import RotaryUnit
from celosia.tb.benches.simulate import simulate


@pytest.mark.parametrize(
    ("simulator", "lanes", "operand_width"), [("verilator", 6, 8), ("icarus", 2, 5)]
)
def test_bench(simulator, lanes, operand_width):
    unit = {"lanes": lanes, "operand_width": operand_width}
    simulate(
        RotaryUnit(**unit),
        bench="celosia.tb.benches.bench_rotary",
        simulator=simulator,
        seed=lanes,
        parameters={**unit, "commands": 40, "beats": 60, "stall": 0.3},
    )


@pytest.mark.parametrize("lanes", [0, 3])
def test_refuses_lanes(lanes):
    message = f"Rotary lanes must be even and positive, not {lanes}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RotaryUnit(lanes)
