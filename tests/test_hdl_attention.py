"""The expander of ATTENTION, under both simulators."""

import pytest

from hdl.control.attention import AttentionExpander
from tb.simulate import simulate


@pytest.mark.parametrize(
    ("simulator", "seed", "stall", "registered"),
    [
        ("icarus", 1, 0.3, False),
        ("verilator", 2, 0.0, False),
        ("icarus", 3, 0.0, True),
        ("verilator", 4, 0.3, True),
    ],
)
def test_attention_becomes_commands(simulator, seed, stall, registered):
    simulate(
        AttentionExpander(registered=registered),
        bench="tb.bench_attention",
        simulator=simulator,
        seed=seed,
        parameters={"instructions": 12, "stall": stall},
    )
