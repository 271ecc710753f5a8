"""The queues and tokens, under both simulators."""

import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.control.dispatch import Dispatch
from celosia.tb.benches.simulate import simulate
from tests.support.longer import is_longer, longer


@pytest.mark.parametrize(
    ("simulator", "seed", "stall", "depth", "registered"),
    [
        ("icarus", 2, 0.3, 1, False),
        ("icarus", 6, 0.0, 4, True),
        *longer(
            ("icarus", 1, 0.0, 2, False),
            ("icarus", 3, 0.0, 5, False),
            ("icarus", 5, 0.1, 1, True),
            ("verilator", 4, 0.1, 3, False),
        ),
    ],
)
def test_commands_wait_for_their_tokens(simulator, seed, stall, depth, registered, request):
    config = {"queue_depth": depth, "registered": registered}
    simulate(
        Dispatch(PRESETS["small"].replace(**config).control),
        bench="celosia.tb.benches.bench_dispatch",
        simulator=simulator,
        seed=seed,
        parameters={
            "config": config,
            "commands": 120 if is_longer(request) else 60,
            "stall": stall,
        },
    )
