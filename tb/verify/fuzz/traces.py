"""Fuzzing of recovery: runs disturbed by resets, aborts, illegal instructions or memory errors."""

from typing import Any

from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.generators.campaign.case import Case
from celosia.tb.machine.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Run a case: disturb the run of a random program, and check the run of the next program.

    The field ``config`` of the case selects the configuration. The index of the case selects the
    kind of disturbance; :class:`celosia.tb.machine.recovery.Campaign` lists the kinds. Before the
    disturbed run, each of two random programs runs once without a disturbance.

    The result is a dictionary. ``mismatch`` describes errors in any of these runs; it is empty
    without an error. ``befell`` is the kind of disturbance. ``cause`` is the error cause in
    register STATUS after the disturbed run.
    """
    rng = case.rng()
    seed, latency = int(rng.integers(1, 1 << 30)), int(rng.integers(60))
    campaign = Campaign(
        PRESETS[case.choice("config", WITH_ENGINES)], seed, programs=2, latency=latency
    )
    try:
        trial = campaign.trial(KINDS[case.index % len(KINDS)])
    finally:
        campaign.machine.close()
    cold = "; ".join(filter(None, campaign.cold))
    return {"mismatch": cold or trial.mismatch, "befell": trial.kind, "cause": trial.cause.name}
