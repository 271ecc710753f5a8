"""celosia verify coverage: the parts of circuits and instruction set that tests reach."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from celosia.arch.errors import InputError, check_known
from celosia.cli.campaign_options import Runner, campaign_options
from celosia.cli.options import seed_option
from celosia.cli.output import as_json, report, say
from celosia.cli.tree import Command
from celosia.generators.campaign.case import Outcome
from celosia.tb.machine.toolchain import check_simulator
from celosia.tb.verify.coverage import goal_programs as programs
from celosia.tb.verify.coverage.covered import CONFIGURATIONS
from celosia.tb.verify.coverage.points import Coverage, ModuleCoverage, from_json, merge, totals
from celosia.tb.verify.coverage.units import KIND, UNITS, run

FUNCTIONAL = "functional"


@dataclass
class Found:
    """Result of a coverage measurement: the points of coverage that tests reached and missed."""

    points: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Points reached, and all points, of each kind: line, toggle or functional."""
    holes: list[str] = field(default_factory=list)
    """Points that were not reached."""
    failures: list[Outcome] = field(default_factory=list)
    """Outcomes of cases that failed."""


@click.command(cls=Command, example="softmax")
@click.argument("units", metavar="[UNIT]...", nargs=-1)
@click.option(
    "--config",
    "configs",
    multiple=True,
    default=tuple(CONFIGURATIONS),
    show_default=True,
    metavar="NAME",
    help=f"Configuration, some minutes each; repeatable: {', '.join(CONFIGURATIONS)}.",
)
@seed_option
@campaign_options
def coverage(
    units: tuple[str, ...],
    configs: tuple[str, ...],
    seed: int,
    runner: Runner,
) -> None:
    """Run benches of units, and test programs; show the coverage points that were not reached.

    There are three kinds of coverage points. A point of `line` is a block of Verilog, or one
    outcome of a condition or multiplexer. A point of `toggle` is a change of one bit, from 0 to 1
    or from 1 to 0. A point of `functional` combines an instruction, one of its flags (or none), a
    value of a size operand (such as the largest), and a memory timing.

    Without UNIT, the command runs all benches and the test programs, and counts points of all
    kinds. If UNIT is `functional`, it runs only the test programs, and counts only points of
    `functional`. For other UNITs, it runs only their benches, and counts points of `line` and
    `toggle`. UNIT can also name a series of runs of the whole accelerator. A Verilog module that
    several units or configurations contain counts once.
    """
    alone = FUNCTIONAL in units
    if alone and len(units) > 1:
        raise InputError(f"Unit {FUNCTIONAL} excludes others")
    for unit in units:
        check_known("unit", unit, (*UNITS, FUNCTIONAL))
    for name in configs:
        check_known("configuration", name, CONFIGURATIONS)
    check_simulator("verilator")
    outcome = Found()
    rows = [] if alone else _circuits(units or UNITS, configs, seed, runner, outcome)
    if alone or not units:
        _functional(configs, seed, runner, outcome)
    for failure in outcome.failures:
        say(f"celosia verify replay {failure.case}  # {failure.message}", err=True)
    result = {
        **{kind: _share(*pair) for kind, pair in outcome.points.items()},
        "points": {
            kind: {"reached": reached, "count": count}
            for kind, (reached, count) in outcome.points.items()
        },
        "units": rows,
        "holes": outcome.holes,
        "failed": len(outcome.failures),
        "seed": seed,
    }
    shown = rows or [{kind: _share(*pair) for kind, pair in outcome.points.items()}]
    report(f"Coverage on {', '.join(configs)}", shown, result)
    if not as_json():
        for kind, (reached, count) in outcome.points.items():
            say(f"{kind}: {reached:,} of {count:,} points, {_share(reached, count):.2%}")
        for hole in outcome.holes:
            say(hole)


def _circuits(
    units: Sequence[str], configs: Sequence[str], seed: int, runner: Runner, into: Found
) -> list[dict[str, Any]]:
    """Run benches and programs for points of circuits; return a row for each unit."""
    whole: Coverage = {}
    own: dict[str, Coverage] = {unit: {} for unit in units}
    for name in configs:
        fields = {"config": name, "units": ",".join(units)}
        for outcome in runner.run(KIND, run, len(units), seed=seed, fields=fields):
            if outcome.failed:
                into.failures.append(outcome)
            else:
                modules = from_json(outcome.result["modules"])
                merge(own[outcome.result["unit"]], modules)
                merge(whole, modules)
    into.points |= totals(whole.values())
    into.holes += [
        f"{module.name}: {text}"
        for module in whole.values()
        for text in module.points["line"].holes
    ]
    return [_row(unit, covered, whole) for unit, covered in own.items()]


def _row(unit: str, own: Coverage, whole: Coverage) -> dict[str, Any]:
    """Return a unit's row: the points that its bench reaches, and those that any run reaches."""
    return {
        "unit": unit,
        "line_points": totals(own.values())["line"][1],
        **{f"own_{kind}": share for kind, share in _percentages(own.values()).items()},
        **_percentages(whole[key] for key in own),
    }


def _functional(configs: Sequence[str], seed: int, runner: Runner, into: Found) -> None:
    """Run programs; reached points count if all results were exact."""
    wanted, reached = set(), set()
    for name in configs:
        wanted |= {f"{name} {point}" for point in programs.points(name)}
        count, fields = programs.cases(name), {"config": name}
        for outcome in runner.run(programs.KIND, programs.run, count, seed=seed, fields=fields):
            if outcome.failed:
                into.failures.append(outcome)
            else:
                reached |= {f"{name} {point}" for point in outcome.result["reached"]}
    into.points["functional"] = len(wanted & reached), len(wanted)
    into.holes += sorted(wanted - reached)


def _percentages(modules: Iterable[ModuleCoverage]) -> dict[str, float]:
    return {kind: _share(*pair) for kind, pair in totals(modules).items()}


def _share(reached: int, count: int) -> float:
    return round(reached / count, 4) if count else 1.0
