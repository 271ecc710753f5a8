"""celosia demo: the main job, with a table and a picture."""

from pathlib import Path

import click

from arch.presets import PRESETS
from cli.output import check_folder, progress, report
from tb.picture import draw
from tb.run_model import run_model
from tb.toolchain import missing_tools

MODELS = ("digits", "digits-simplified")
SMALLER_COUNT = 3


@click.command()
@click.option(
    "--out",
    "picture",
    type=click.Path(path_type=Path),
    default=Path("build/demo.png"),
    show_default=True,
    help="File for the picture.",
)
def demo(picture: Path) -> None:
    """Classify the digits' test split with two Transformers on the Verilated `small` machine."""
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
        with progress(f"{model} on small, {simulator}") as update:
            results.append(run_model(model, PRESETS["small"], simulator, count, update))
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
    report(f"Digits on small, {simulator}", rows, False, {"mismatches": mismatches})
    draw(results, picture)
    click.echo(f"Picture: {picture}")
