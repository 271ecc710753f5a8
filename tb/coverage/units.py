"""Cases of coverage: a unit's bench, and what of the unit's Verilog it reaches."""

import tempfile
from pathlib import Path
from typing import Any

from arch.config import Config
from arch.presets import load
from generators.campaign.case import Case
from tb.benches import BENCHES
from tb.coverage.points import read_points, to_json
from tb.coverage.verilog import CoveredVerilog
from tb.simulate import simulate

KIND = "coverage"

CONFIGURATIONS = {
    "tiny": ("tiny", ()),
    "lanes": ("tiny", ("lanes=2", "rotary=true", "argmax=true", "weight_depth=7")),
    "odd": ("odd", ()),
}
"""The smallest machine, one with every unit and several lanes, and one with odd sizes."""

_TIMEOUT = 1200.0  # seconds, for the build and for the run each


def covered_config(name: str) -> Config:
    """Return one of ``CONFIGURATIONS``, with ports by which a bench sees every result."""
    source, changes = CONFIGURATIONS[name]
    return load(source, list(changes)).replace(trace=True, mem_addr_width=16)


def run(case: Case) -> dict[str, Any]:
    """Run the bench of the ``index``-th of the case's ``units`` on its configuration ``config``.

    ``modules`` is the coverage of :mod:`tb.coverage.points`. Raises :class:`RunError` where the
    bench fails.
    """
    config = covered_config(case["config"])
    unit = case["units"].split(",")[case.index]
    bench = BENCHES[unit]
    component, parameters = bench.make(config)
    verilog = CoveredVerilog(component)
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        data = Path(folder) / "coverage.dat"
        simulate(
            component,
            bench=bench.module,
            simulator="verilator",
            seed=case.seed,
            parameters=parameters,
            verilog=verilog.text,
            coverage=data,
            timeout=_TIMEOUT,
        )
        return {"unit": unit, "modules": to_json(read_points(data, verilog))}
