"""Fuzzing of recovery: runs disturbed by resets, aborts, illegal instructions or memory errors."""

from typing import Any

from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.generators.campaign.case import Case
from celosia.tb.machine.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Run a case: a trial of ``celosia.tb.machine.recovery`` on its configuration ``config``.

    The case's index selects the disturbance. The result is a dictionary of ``mismatch`` (empty if
    there is none), ``befell`` (the kind of disturbance) and ``cause`` in STATUS.
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
