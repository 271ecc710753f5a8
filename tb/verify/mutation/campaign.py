"""Cases of mutation testing: each runs the bench of a unit on some mutants of this unit."""

import json
import tempfile
from pathlib import Path
from typing import Any

from celosia.arch.presets import load
from celosia.generators.campaign.case import Case
from celosia.tb.benches.catalog import BENCHES, Bench
from celosia.tb.benches.simulate import simulate
from celosia.tb.verify.mutation.devices import DEVICE_BENCHES
from celosia.tb.verify.mutation.equivalence import equivalent
from celosia.tb.verify.mutation.forks import ended
from celosia.tb.verify.mutation.links import LINK_BENCHES
from celosia.tb.verify.mutation.netlist import Mutant, mutate

GROUP = 100
"""Mutants of a case: one simulation forks for them."""

MUTATED: dict[str, Bench] = BENCHES | DEVICE_BENCHES | LINK_BENCHES
"""Benches of all units and circuits that are run on mutants."""

_TIMEOUT = 3600.0  # seconds of all mutants of a case


def run(case: Case) -> dict[str, Any]:
    """Run a unit's bench on at most ``GROUP`` mutants of the unit; return a dictionary.

    - ``mutants``: number of tested mutants.
    - ``killed``: number of mutants that the bench detects.
    - ``equivalent``: number of other mutants whose outputs are proven to equal the unit's.
    - ``survivors``: a list with a description of each remaining mutant.

    ``case["prove"]`` is the time limit of a proof (s).
    """
    config = load(case["config"], case["set"].split()).replace(trace=True, mem_addr_width=16)
    bench = MUTATED[case.choice("unit", MUTATED)]
    component, parameters = bench.make(config)
    mutation = mutate(component, case.number("count"), case.seed, bench.inner)
    group = mutation.mutants[case.index * GROUP :][:GROUP]
    with tempfile.TemporaryDirectory(prefix="celosia.") as place:
        folder = Path(place)
        numbers = json.dumps([mutant.number for mutant in group])
        (folder / "mutants.json").write_text(numbers, encoding="utf-8")
        # Without a mutation the bench passes, or this raises.
        simulate(
            component,
            bench=bench.module,
            testcase=bench.tests,
            simulator="verilator",
            seed=case.seed,
            parameters={**parameters, **bench.mutants},
            verilog=mutation.verilog,
            mutants=folder,
            timeout=_TIMEOUT,
        )
        left = [mutant for mutant in group if _passed(folder, mutant)]
    same = equivalent(mutation, left, case.number("prove"))
    return {
        "mutants": len(group),
        "killed": len(group) - len(left),
        "equivalent": len(same),
        "survivors": [str(mutant) for mutant in left if mutant.number not in same],
    }


def _passed(folder: Path, mutant: Mutant) -> bool:
    text = ended(folder / str(mutant.number) / "results.xml")
    return "<testcase" in text and "<failure" not in text and "<error" not in text
