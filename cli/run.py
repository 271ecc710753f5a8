"""celosia run: a trained model on a machine."""

from pathlib import Path

import click

from arch.errors import InputError
from cli.options import config_options, json_option, memory_options, resolve, simulator_option
from cli.output import cycles_table, progress, report
from generators.compiler import Options
from tb.memory_timing import FAR, MemoryTiming
from tb.run_inputs import run_inputs
from tb.run_model import run_model
from tb.run_sentences import run_sentences

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model")
@config_options("small")
@simulator_option
@click.option("--sentences", type=_FILE, help="Run a model of texts on a file's lines.")
@click.option("--inputs", type=_FILE, help="Run any model on a .npy file's inputs.")
@click.option("--calibration", type=_FILE, help="Texts or inputs to calibrate on.")
@click.option("--tokens", type=int, default=0, help="Longest text; 0 for the model's own length.")
@click.option("--count", type=int, help="Images of the test split, or sentences; all without it.")
@click.option("--percentile", default=100.0, show_default=True, help="Share in a range (percent).")
@click.option(
    "--balance", default=0.7, show_default=True, help="How far columns fill ranges, 0 to 1."
)
@click.option(
    "--weights",
    type=click.Choice(["channel", "tensor"]),
    default="channel",
    show_default=True,
    help="What has a scale of its own.",
)
@click.option("--skip-zero-tiles", is_flag=True, help="Mask weight tiles that are all zero.")
@memory_options(FAR)
@json_option
def run(
    model: str,
    source: str,
    overrides: tuple[str, ...],
    simulator: str,
    sentences: Path | None,
    inputs: Path | None,
    calibration: Path | None,
    tokens: int,
    count: int | None,
    percentile: float,
    balance: float,
    weights: str,
    skip_zero_tiles: bool,
    timing: MemoryTiming,
    as_json: bool,
) -> None:
    """Run MODEL (a name, a folder or an ONNX file) on the digits' test split, or on what is given.

    Every intermediate tensor is compared with the golden machine's.
    """
    config = resolve(source, overrides)
    options = Options(
        percentile=percentile,
        balance=balance,
        per_channel=weights == "channel",
        skip_zero_tiles=skip_zero_tiles,
    )
    if sentences is None and inputs is None and (calibration is not None or tokens):
        raise InputError("Options --calibration and --tokens need --sentences or --inputs")
    if sentences is not None and inputs is not None:
        raise InputError("Options --sentences and --inputs exclude each other")
    run_files = run_sentences if inputs is None else run_inputs
    file = sentences or inputs
    with progress(f"{model} on {config.name}, {simulator}") as update:
        if file is None:
            result = run_model(model, config, simulator, count, update, options, timing)
        else:
            result = run_files(
                model,
                config,
                simulator,
                file,
                calibration=calibration,
                tokens=tokens,
                count=count,
                progress=update,
                options=options,
                timing=timing,
            )
    report(f"{model} on {config.name}", [result], as_json, result)
    cycles_table(result, as_json)
