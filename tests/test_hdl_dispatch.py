"""The queues and tokens, under both simulators."""

import pytest

from arch.presets import PRESETS
from hdl.dispatch import Dispatch
from tb.simulate import simulate


@pytest.mark.parametrize(
    ("simulator", "seed", "stall", "depth"),
    [("icarus", 1, 0.0, 2), ("icarus", 2, 0.3, 1), ("icarus", 3, 0.0, 5), ("verilator", 4, 0.1, 3)],
)
def test_commands_wait_for_their_tokens(simulator, seed, stall, depth):
    config = {"queue_depth": depth}
    simulate(
        Dispatch(PRESETS["small"].replace(**config)),
        bench="tb.bench_dispatch",
        simulator=simulator,
        seed=seed,
        parameters={"config": config, "commands": 120, "stall": stall},
    )
