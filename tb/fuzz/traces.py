"""Runs that something befalls: resets, aborts, refusals, memory that is silent or fails."""

from typing import Any

from arch.presets import PRESETS, WITH_ENGINES
from generators.campaign.case import Case
from tb.recovery import KINDS, Campaign


def run(case: Case) -> dict[str, Any]:
    """Return what comes of a trial (:class:`tb.recovery.Campaign`) on the configuration ``config``.

    The kinds of trial take turns by the case's number.
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
