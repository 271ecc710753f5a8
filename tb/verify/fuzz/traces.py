"""Disturbed runs: resets, aborts, refusals, memory that is silent or fails."""

from typing import Any

from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.generators.campaign.case import Case
from celosia.tb.machine.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Return the outcome of a trial (``celosia.tb.machine.recovery``) on ``config``.

    The kind of trial depends on the case's number.
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
