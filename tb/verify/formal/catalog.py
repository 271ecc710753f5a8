"""Catalog of all proven properties, and their table for docs/proofs.md."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from celosia.arch.errors import InputError, RunError, check_known
from celosia.arch.packages import remedy
from celosia.arch.support import pages
from celosia.generators.campaign.case import Campaign
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers
from celosia.tb.verify.formal.arithmetic import ARITHMETIC
from celosia.tb.verify.formal.buses import BUSES
from celosia.tb.verify.formal.control import CONTROL
from celosia.tb.verify.formal.formats import PACKED
from celosia.tb.verify.formal.memories import MEMORIES
from celosia.tb.verify.formal.ports import PORTS
from celosia.tb.verify.formal.prover import Property, missing_tools, prove
from celosia.tb.verify.formal.sequencing import SEQUENCING
from celosia.tb.verify.formal.streams import STREAMS

PROPERTIES = {
    proof.name: proof
    for group in (STREAMS, PORTS, ARITHMETIC, PACKED, MEMORIES, CONTROL, SEQUENCING, BUSES)
    for proof in group
}
"""Every property by its name."""


def choose(names: Sequence[str]) -> list[Property]:
    """Return the properties with the given names, or all properties if no name is given.

    Raises :class:`InputError` if a name is unknown, or the tools for proofs are not installed.
    """
    for name in names:
        check_known("property", name, PROPERTIES)
    missing = missing_tools()
    if missing:
        raise InputError(f"Proofs need {' and '.join(missing)}; {remedy('formal')}")
    return [PROPERTIES[name] for name in names or PROPERTIES]


def results(
    proofs: Sequence[Property],
    *,
    broken: bool,
    jobs: int,
    tell: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """Try to prove properties, at most ``jobs`` at a time; return a list of dictionaries.

    There is a dictionary for each property. The value of ``holds`` names the cycles for which the
    property is proven. If ``broken`` is true, mutants of the circuits are examined, which must not
    have the property. ``tell`` gets the numbers of finished and of all proofs. Raises
    :class:`RunError` if a tool fails.
    """
    with Store(None) as store:
        outcomes = list(
            run_campaign(
                Campaign("proof", 0, {}, ""),
                lambda case: _result(proofs[case.index], broken),
                len(proofs),
                store=store,
                workers=Workers(jobs, threads=True),
                tell=tell,
            )
        )
    for outcome in outcomes:
        if outcome.failed:
            raise RunError(outcome.error)
    return [outcome.result for outcome in outcomes]


def _result(proof: Property, broken: bool) -> dict[str, Any]:
    began = time.monotonic()
    counterexample = prove(proof, broken=broken)
    return {
        "property": proof.name,
        "holds": proof.bound,
        "counterexample": counterexample,
        "as_expected": (counterexample is not None) == broken,
        "seconds": round(time.monotonic() - began, 1),
    }


def table() -> str:
    """Return the table of all properties for docs/proofs.md, in Markdown.

    Properties with the same statement and the same :attr:`Property.bound` share a line.
    """
    alike: dict[tuple[str, str], list[Property]] = {}
    for proof in PROPERTIES.values():
        alike.setdefault((proof.statement, proof.bound), []).append(proof)
    rows = []
    for (statement, bound), proofs in alike.items():
        names = ", ".join(f"`{proof.name}`" for proof in proofs)
        modules = dict.fromkeys(proof.module.removeprefix("celosia.") for proof in proofs)
        circuits = ", ".join(f"`{module}`" for module in modules)
        rows.append((names, circuits, statement, bound))
    return pages.table(("property", "circuit", "statement", "holds"), rows)
