"""The sequencer, under both simulators."""

import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.control.sequencer import Sequencer
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer

FEW = {
    "norm": False,
    "softmax": False,
    "fused": False,
}


@pytest.mark.parametrize(
    ("simulator", "seed", "stall", "config", "programs"),
    [
        ("icarus", 1, 0.0, {}, 5),
        ("icarus", 2, 0.4, FEW | {"activation": False, "program_depth": 333}, 5),
        ("verilator", 4, 0.2, FEW | {"registered": True}, 12),
        *longer(
            ("icarus", 1, 0.0, {}, 12),
            ("icarus", 2, 0.4, FEW | {"activation": False, "program_depth": 333}, 12),
            ("verilator", 3, 0.2, {"program_depth": 1024}, 12),
        ),
    ],
)
def test_programs_mean_what_they_say(simulator, seed, stall, config, programs):
    machine = PRESETS["small"].replace(**config)
    simulate(
        Sequencer(machine.control, machine.instructions),
        bench="celosia.tb.benches.bench_sequencer",
        simulator=simulator,
        seed=seed,
        parameters={"config": config, "programs": programs, "stall": stall},
    )
