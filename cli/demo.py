"""celosia demo: classify images on a simulated machine, print a table and draw a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from celosia.arch.packages import Deferred
from celosia.arch.presets import PRESETS
from celosia.arch.support.writing import check_folder
from celosia.cli.output import progress, report
from celosia.cli.paths import FILE, check_ending
from celosia.cli.tree import Command
from celosia.generators.frontend import digits
from celosia.running import run_files
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.trace_model import trace_model

_picture: Any = Deferred("celosia.tb.models.picture", "The picture needs")

MODELS = ("digits", "digits-simplified")
SMALLER_COUNT = 3


@click.command(cls=Command, example="", reports=False)
@click.argument("picture", metavar="[PICTURE]", type=FILE, default=Path("build/demo.png"))
def demo(picture: Path) -> None:
    """Classify images of handwritten digits with two Transformers on a simulated machine.

    The machine has the configuration `small`. The images are 500 test images of a data set that
    comes with scikit-learn. Verilator simulates the machine. If Verilator is missing, Icarus or the
    golden machine (an exact model in software) classifies only the first few images. The command
    prints accuracies and cycles, and draws images with their predictions and the cycles to the file
    PICTURE, by default build/demo.png.
    """
    check_ending(picture, (".png", ".svg", ".pdf"))
    check_folder(picture.parent, [picture.name])
    simulator, count = "verilator", None
    missing = missing_tools("verilator")
    if missing:
        simulator, count = "icarus", SMALLER_COUNT
        click.echo(f"Without {' and '.join(missing)} there is no Verilator: a smaller job runs.")
        if missing_tools("icarus"):
            simulator = "golden"
    results = []
    for model in MODELS:
        ran = run_files(model, PRESETS["small"], simulator, count=count, show=progress)
        results.append(ran.figures)
    shown = (
        "model",
        "count",
        "accuracy",
        "float_accuracy",
        "cycles_per_inference",
        "utilization",
        "mismatches",
        "cycles_per_second",
    )
    rows = [{name: result[name] for name in shown} for result in results]
    mismatches = sum(result["mismatches"] for result in results)
    report(f"Digits on small, {simulator}", rows, {"mismatches": mismatches})
    _predictions(results)
    recording = None
    if simulator != "golden":
        with progress(f"{MODELS[0]} on small, recorded"):
            recording = trace_model(MODELS[0], PRESETS["small"], simulator).recording
    _, test = digits.load()
    _picture.draw(results, test.images, recording, picture)
    click.echo(f"Picture: {picture}")


def _predictions(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the predictions of the images that the picture shows."""
    shown = _picture.chosen(results[0]["predictions"], results[0]["labels"])
    lines = [("label", results[0]["labels"])]
    lines += [(result["model"], result["predictions"]) for result in results]
    for name, numbers in lines:
        click.echo(f"{name:>18}: {' '.join(str(numbers[index]) for index in shown)}")
