"""Benches of circuits at the pins of devices, by which mutants are run."""

import pytest

from celosia.arch.presets import load
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.verify.mutation.devices import DEVICE_BENCHES


@pytest.mark.long
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize("name", DEVICE_BENCHES)
def test_a_device_bench_passes(name: str) -> None:
    bench = DEVICE_BENCHES[name]
    component, parameters = bench.make(load("tiny", ["lanes=2"]))
    ran = simulate(
        component, bench=bench.module, simulator="verilator", seed=2, parameters=parameters
    )
    assert ran.tests == (3 if name == "flash_reader" else 1)
