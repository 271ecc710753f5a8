"""The selftest, against the circuit itself; and the guarantees for its programs."""

import pytest

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.tb.machine.selftest import selftest
from celosia.tb.machine.simulated import VerilatorMachine
from tests.support.longer import longer
from tests.support.text_cases import TEXT

REGISTERED = PRESETS["tiny"].replace(
    program_depth=1024, max_row=16, argmax=True, fused=True, registered=True
)


@pytest.mark.parametrize(
    ("config", "memory", "programs"),
    [(TEXT, 1 << 16, 2), *longer((REGISTERED, 1 << 14, 4))],
    ids=["text", "registered"],
)
def test_units_pass(config: Config, memory: int, programs: int) -> None:
    machine = VerilatorMachine(config, memory_bytes=memory, latency=4)
    report = selftest(machine, config, memory, programs=programs, seed=6)
    machine.close()
    assert report["mismatches"] == 0
    units = {name: unit["result"] for name, unit in report["units"].items()}
    assert set(units.values()) == {"pass"}, units
