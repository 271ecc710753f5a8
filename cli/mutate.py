"""celosia verify mutate: counts the changes of a unit's netlist that the unit's bench detects."""

import math
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.arch.packages import remedy
from celosia.cli.campaign_options import Runner, campaign_options
from celosia.cli.options import (
    check_unit,
    override_option,
    resolve,
    seed_option,
    source_option,
)
from celosia.cli.output import as_json, report, say
from celosia.cli.tree import Command
from celosia.generators.campaign.case import Outcome
from celosia.tb.machine.toolchain import check_simulator
from celosia.tb.verify.formal.prover import missing_tools
from celosia.tb.verify.mutation.campaign import GROUP, MUTATED, run
from celosia.tb.verify.mutation.equivalence import SECONDS
from celosia.tb.verify.mutation.reasons import reason

_MOST = (1 << 16) - 1


@click.command(cls=Command, example="requantizer --count 50")
@click.argument("units", metavar="UNIT...", nargs=-1, required=True)
@source_option("tiny")
@override_option
@click.option("--count", default=200, show_default=True, help="Mutants of each unit.")
@seed_option
@campaign_options
def mutate(
    units: tuple[str, ...],
    source: str,
    overrides: tuple[str, ...],
    count: int,
    seed: int,
    runner: Runner,
) -> None:
    """Change the netlist of each UNIT, and count how many changes the unit's bench detects.

    A copy of the netlist with one changed cell is a mutant. The bench runs on --count mutants of
    each unit. A mutant whose outputs are proven to equal the unit's is not counted. The score is
    the number of detected mutants divided by the number of counted mutants. For each undetected
    mutant, the command shows the source line of the changed cell. It also shows why the bench
    cannot detect the mutant, if the reason is known.
    """
    config = resolve(source, overrides)
    for unit in units:
        if unit not in MUTATED:
            raise InputError(f"Unknown unit {unit!r}; benches are for {', '.join(MUTATED)}")
        check_unit(unit, config)
    if not 1 <= count <= _MOST:
        raise InputError(f"--count must be from 1 to {_MOST:,}, not {count}")
    missing = missing_tools()
    if missing:
        raise InputError(f"Mutation needs {' and '.join(missing)}; {remedy('formal')}")
    check_simulator("verilator")
    rows: list[dict[str, Any]] = []
    survivors = []
    for unit in units:
        fields = {"unit": unit, "config": source, "set": " ".join(overrides), "count": str(count)}
        fields |= {"prove": str(SECONDS)}
        outcomes = runner.run("mutant", run, math.ceil(count / GROUP), seed=seed, fields=fields)
        rows.append({"unit": unit, **_sums(outcomes)})
        survivors += [
            {"unit": unit, "mutant": each, "reason": reason(unit, each)}
            for outcome in outcomes
            for each in outcome.result.get("survivors", [])
        ]
        for one in outcomes:
            if one.failed:
                say(f"celosia verify replay {one.case}  # {one.message}", err=True)
    result = {**_total(rows), "units": rows, "survivors": survivors, "seed": seed}
    report(f"Mutants on {config.name}", rows, result)
    if not as_json():
        for each in survivors:
            say(f"{each['unit']}: {each['mutant']}" + f" ({each['reason']})" * bool(each["reason"]))


def _sums(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the sums of a unit's cases; ``failed`` counts cases without a result."""
    results = [outcome.result for outcome in outcomes if not outcome.failed]
    sums = {
        name: sum(each[name] for each in results) for name in ("mutants", "killed", "equivalent")
    }
    return {"score": _score(sums), **sums, "failed": len(outcomes) - len(results)}


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("mutants", "killed", "equivalent", "failed")
    sums = {name: sum(row[name] for row in rows) for name in names}
    return {"score": _score(sums), **sums}


def _score(sums: dict[str, int]) -> float | None:
    """Return the share of detected mutants among those that differ from the unit."""
    different = sums["mutants"] - sums["equivalent"]
    return round(sums["killed"] / different, 4) if different else None
