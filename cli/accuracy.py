"""celosia verify accuracy: measure errors of nonlinear units and number formats."""

import click

from celosia.arch.errors import InputError
from celosia.cli.output import progress, report
from celosia.cli.tree import Command
from celosia.generators.studies.accuracy import accuracy_report

_MOST_ROWS = 100_000_000


@click.command(cls=Command, example="--rows 2000")
@click.option("--rows", default=100_000, show_default=True, help="Random rows of row units.")
def accuracy(
    rows: int,
) -> None:
    """Measure the largest errors of nonlinear units and number formats, compared with float64.

    An error is the difference from a calculation in float64, in steps (least significant bits) of
    the output. The measured formats are formats for weights, for keys and values, for low-rank
    corrections of weights, and for INT16 activations.
    """
    if rows < 1:
        raise InputError(f"Rows must be positive, not {rows}")
    if rows > _MOST_ROWS:
        raise InputError(f"Rows must be at most {_MOST_ROWS}, not {rows}")
    with progress("Rows") as update:
        result = accuracy_report(rows, 1, lambda _name, done, total: update(done, total))
    lines = [{"unit": name, **figures} for name, figures in result.items()]
    wrong = any(line["max_lsb"] > line["bound_lsb"] for line in lines)
    report("Largest error against float64", lines, result, wrong=wrong)
