"""The expander of ATTENTION, under both simulators."""

import pytest

from hdl.attention import AttentionExpander
from tb.simulate import simulate


@pytest.mark.parametrize(
    ("simulator", "seed", "stall"), [("icarus", 1, 0.3), ("verilator", 2, 0.0)]
)
def test_attention_becomes_commands(simulator, seed, stall):
    simulate(
        AttentionExpander(),
        bench="tb.bench_attention",
        simulator=simulator,
        seed=seed,
        parameters={"instructions": 12, "stall": stall},
    )
