"""The selftest, against the circuit itself; and the guarantees for its programs."""

from celosia.arch.presets import PRESETS
from celosia.tb.machine.selftest import selftest
from celosia.tb.machine.simulated import VerilatorMachine

CONFIG = PRESETS["tiny"].replace(
    lanes=1, program_depth=1024, max_row=16, argmax=True, fused=True, rotary=False
)
MEMORY = 1 << 14


def test_units_pass() -> None:
    config = CONFIG.replace(registered=True)
    machine = VerilatorMachine(config, memory_bytes=MEMORY, latency=4)
    report = selftest(machine, config, MEMORY, programs=4, seed=6)
    machine.close()
    assert report["mismatches"] == 0
    units = {name: unit["result"] for name, unit in report["units"].items()}
    assert set(units.values()) == {"pass"}, units
