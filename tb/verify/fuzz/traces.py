"""Fuzzing of recovery: runs disturbed by resets, aborts, illegal instructions or memory errors."""

from typing import Any

from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.generators.campaign.case import Case
from celosia.tb.machine.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Run a case: disturb the run of a random program, and check the next program's run.

    The case's field ``config`` selects the configuration, and the case's index selects the kind of
    disturbance. The kinds are listed in :class:`celosia.tb.machine.recovery.Campaign`.

    The result is a dictionary. ``mismatch`` describes errors of both runs and of the undisturbed
    runs before them, and is empty if there is none. ``befell`` is the kind of disturbance.
    ``cause`` is the error cause that the register STATUS had after the disturbed run.
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
