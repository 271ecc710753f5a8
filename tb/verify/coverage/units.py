"""Cases of a campaign for line and toggle coverage.

Most cases run the bench of one unit, and return the points that the bench reaches.
"""

import tempfile
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError, check_known
from celosia.generators.campaign.case import Case
from celosia.tb.benches.catalog import BENCHES
from celosia.tb.benches.simulate import simulate
from celosia.tb.verify.coverage.covered import covered_config
from celosia.tb.verify.coverage.points import read_points, to_json
from celosia.tb.verify.coverage.verilog import CoveredVerilog
from celosia.tb.verify.coverage.whole_machine import PARTS, run_part

KIND = "coverage"

UNITS = (*PARTS, *(unit for unit in BENCHES if unit != "accelerator"))
"""Runs of the accelerator instead of its bench, and units with a bench.

The accelerator's bench runs random programs on the same circuit, a hundred times slower.
"""

_TIMEOUT = 1200.0  # seconds, for the build and for the run each


def run(case: Case) -> dict[str, Any]:
    """Simulate one unit, or runs of the accelerator; return the coverage in a dictionary.

    The case's index selects a name from its field ``units``: a unit with a bench, or runs in
    ``PARTS``. The result has the name (``unit``) and the coverage of each module (``modules``, made
    by :func:`to_json`). Raises :class:`RunError` if the bench fails.
    """
    config = covered_config(case["config"])
    units = case["units"].split(",")
    for each in units:
        check_known("unit", each, (*PARTS, *BENCHES))
    if case.index >= len(units):
        raise InputError(f"Case {case} has the units 0 to {len(units) - 1}, not {case.index}")
    unit = units[case.index]
    if unit in PARTS:
        return {"unit": unit, "modules": to_json(run_part(unit, config, case.rng()))}
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
