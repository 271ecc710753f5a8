"""celosia verify prove: formal proofs of properties of the circuits, by induction."""

import os

import click

from celosia.cli.output import progress, report
from celosia.cli.tree import Command
from celosia.tb.verify.formal.catalog import choose, results


@click.command(cls=Command, example="skid-order")
@click.argument("names", metavar="[PROPERTY]...", nargs=-1)
@click.option(
    "--broken",
    is_flag=True,
    help="Break each circuit as its property says: its proof must find a counterexample.",
)
def prove(names: tuple[str, ...], broken: bool) -> None:
    """Prove properties of the circuits for all inputs.

    A proof covers all cycles, or a limited number of cycles from power-on. Without a PROPERTY, all
    properties are proven.
    """
    chosen = choose(names)
    with progress("Proofs") as update:
        rows = results(chosen, broken=broken, jobs=os.cpu_count() or 1, tell=update)
    failed = sum(not row["as_expected"] for row in rows)
    title = "Broken circuits" if broken else "Properties"
    report(title, rows, {"properties": rows, "failed": failed})
