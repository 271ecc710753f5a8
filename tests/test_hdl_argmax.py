"""The argmax unit: a bench under both simulators, and its refusals."""

import re

import pytest

from celosia.hdl.functions.argmax import ArgmaxUnit
from celosia.tb.benches.simulate import simulate


@pytest.mark.parametrize(("simulator", "lanes"), [("verilator", 12), ("icarus", 5), ("icarus", 1)])
def test_bench(simulator, lanes):
    simulate(
        ArgmaxUnit(lanes),
        bench="celosia.tb.benches.bench_argmax",
        simulator=simulator,
        seed=lanes,
        parameters={"lanes": lanes, "rows": 150, "beats": 20, "stall": 0.3},
    )


def test_refuses_lanes():
    message = "Argmax lanes must be a positive integer, not 0"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ArgmaxUnit(0)
