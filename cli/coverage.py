"""celosia coverage: what of the circuits the benches reach."""

from collections.abc import Iterable
from typing import Any

import click

from arch.errors import InputError
from cli.campaign_options import Runner, campaign_options
from cli.options import json_option, seed_option
from cli.output import report
from tb.benches import BENCHES
from tb.coverage.points import KINDS, Coverage, ModuleCoverage, from_json, merge, totals
from tb.coverage.units import CONFIGURATIONS, KIND, run
from tb.toolchain import check_simulator


@click.command()
@click.option("--unit", "units", multiple=True, metavar="UNIT", help="Only this unit; repeatable.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    default=tuple(CONFIGURATIONS),
    show_default=True,
    metavar="NAME",
    help=f"Configuration; repeatable: {', '.join(CONFIGURATIONS)}.",
)
@seed_option
@campaign_options
@json_option
def coverage(
    units: tuple[str, ...], configs: tuple[str, ...], seed: int, runner: Runner, as_json: bool
) -> None:
    """Run the units' benches, and tell what of the units' Verilog they do not reach.

    Points of `line` are blocks, both ways of each condition and of each choice; those of `toggle`
    are both changes of each bit. A module that stands in several units or configurations with the
    same circuit counts once.
    """
    for unit in units:
        if unit not in BENCHES:
            raise InputError(f"Unknown unit {unit!r}; benches are for {', '.join(BENCHES)}")
    for name in configs:
        if name not in CONFIGURATIONS:
            raise InputError(
                f"Unknown configuration {name!r}; known are {', '.join(CONFIGURATIONS)}"
            )
    check_simulator("verilator")
    chosen = units or tuple(BENCHES)
    whole: Coverage = {}
    own: dict[str, list[Coverage]] = {unit: [] for unit in chosen}
    failed = 0
    for name in configs:
        fields = {"config": name, "units": ",".join(chosen)}
        for one in runner.run(KIND, run, len(chosen), seed=seed, fields=fields):
            if one.failed:
                failed += 1
                click.echo(f"celosia replay {one.case}  # {one.message}", err=True)
                continue
            found = from_json(one.result["modules"])
            own[one.result["unit"]].append(found)
            merge(whole, found)
    rows = [_row(unit, found, whole) for unit, found in own.items()]
    holes = [
        {"module": module.name, "point": text}
        for module in whole.values()
        for text in module.points["line"].holes
    ]
    result = {
        **_shares(whole.values()),
        "points": {
            kind: {"reached": reached, "count": count}
            for kind, (reached, count) in totals(whole.values()).items()
        },
        "units": rows,
        "holes": holes,
        "failed": failed,
        "seed": seed,
    }
    report(f"Coverage on {', '.join(configs)}", rows, as_json, result)
    if not as_json:
        for kind, (reached, count) in totals(whole.values()).items():
            click.echo(f"{kind}: {reached:,} of {count:,} points, {result[kind]:.2%}")
        for hole in holes:
            click.echo("{module}: {point}".format(**hole))


def _row(unit: str, found: list[Coverage], whole: Coverage) -> dict[str, Any]:
    """Return a unit's row: what its own bench reaches, and what any bench reaches of it."""
    own: Coverage = {}
    for each in found:
        merge(own, each)
    everywhere = [whole[key] for key in own]
    return {
        "unit": unit,
        "line_points": totals(own.values())["line"][1],
        **{f"own_{kind}": share for kind, share in _shares(own.values()).items()},
        **_shares(everywhere),
    }


def _shares(modules: Iterable[ModuleCoverage]) -> dict[str, float]:
    """Return the share of each kind's points that was reached."""
    found = totals(modules)
    return {
        kind: round(reached / count, 4) if count else 1.0
        for kind in KINDS
        for reached, count in [found[kind]]
    }
