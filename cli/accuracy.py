"""celosia verify accuracy: nonlinear units and formats against float64."""

from pathlib import Path

import click

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.cli.options import json_option, seed_option
from celosia.cli.output import progress, report
from celosia.cli.paths import FILE, MODEL
from celosia.cli.tree import Command
from celosia.generators.studies.accuracy import accuracy_report
from celosia.generators.studies.closeness import closeness

_MOST_ROWS = 100_000_000


@click.command(cls=Command, example="--rows 2000")
@click.option("--rows", default=100_000, show_default=True, help="Random rows of row units.")
@click.option(
    "--model",
    type=MODEL,
    help="Compare this model's outputs instead, activations as tables, --quantize functions=wide, "
    "or --quantize activations=mixed.",
)
@click.option("--tokenizer", type=FILE, help="Its tokenizer's file; its own without it.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Test images, or texts that the model makes up, to compare it on.",
)
@seed_option
@json_option
def accuracy(
    rows: int,
    model: str | None,
    tokenizer: Path | None,
    count: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure the largest error of nonlinear units and formats in output steps.

    Formats are those of weights, keys and values, low-rank corrections, and activations of INT16.
    With --model the distance of a model's integers from its floats.
    """
    if model is not None:
        with progress(f"{model}, calibration") as update:
            found = closeness(model, tokenizer, PRESETS["small"], count, update)
        compared = {name: one.figures() for name, one in found.items()}
        shown = ("inputs", "cosine", "square_error", "agreement", "score_error")
        lines = [
            {"activations": name, **{key: one[key] for key in shown}}
            for name, one in compared.items()
        ]
        report(f"{model}, integers against floats", lines, as_json, compared)
        return
    if rows < 1:
        raise InputError(f"Rows must be positive, not {rows}")
    if rows > _MOST_ROWS:
        raise InputError(f"Rows must be at most {_MOST_ROWS}, not {rows}")
    with progress("Rows") as update:
        result = accuracy_report(rows, seed, lambda _name, done, total: update(done, total))
    lines = [{"unit": name, **figures} for name, figures in result.items()]
    wrong = any(line["max_lsb"] > line["bound_lsb"] for line in lines)
    report("Largest error against float64", lines, as_json, result, wrong=wrong)
