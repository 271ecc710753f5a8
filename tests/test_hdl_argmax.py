"""The argmax unit: a bench under both simulators, and its refusals."""

import re

import pytest

from celosia.hdl.functions.argmax import ArgmaxUnit
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer


@pytest.mark.parametrize(
    ("simulator", "lanes"), [("icarus", 5), ("icarus", 1), *longer(("verilator", 12))]
)
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
