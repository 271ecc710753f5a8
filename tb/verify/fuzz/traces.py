"""Fuzzing of recovery: runs disturbed by resets, aborts, illegal instructions or memory errors."""

from typing import Any

from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.generators.campaign.case import Case
from celosia.tb.machine.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Disturb the run of a random program, and check the next run; return a dictionary.

    The case's index selects a disturbance from :data:`celosia.tb.machine.recovery.KINDS`. Keys of
    the result:

    - ``befell``: the disturbance.
    - ``mismatch``: an error in any run, or empty.
    - ``cause``: the error cause in STATUS after the disturbed run.
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
