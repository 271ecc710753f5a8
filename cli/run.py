"""celosia run: a trained model on a machine."""

from pathlib import Path

import click

from cli.options import config_options, json_option, memory_options, resolve, simulator_option
from cli.output import cycles_table, progress, report
from generators.compiler import Options
from tb.memory_timing import FAR, MemoryTiming
from tb.run_model import run_model
from tb.run_sentences import run_sentences

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model")
@config_options("small")
@simulator_option
@click.option("--sentences", type=_FILE, help="Run a model of texts on a file's lines.")
@click.option("--calibration", type=_FILE, help="Texts to calibrate such a model on.")
@click.option("--tokens", type=int, default=0, help="Longest text; 0 for the model's own length.")
@click.option("--count", type=int, help="Images of the test split, or sentences; all without it.")
@click.option("--skip-zero-tiles", is_flag=True, help="Mask weight tiles that are all zero.")
@memory_options(FAR)
@json_option
def run(
    model: str,
    source: str,
    overrides: tuple[str, ...],
    simulator: str,
    sentences: Path | None,
    calibration: Path | None,
    tokens: int,
    count: int | None,
    skip_zero_tiles: bool,
    timing: MemoryTiming,
    as_json: bool,
) -> None:
    """Run MODEL (a name or a folder) on the digits' test split, or on sentences.

    Every intermediate tensor is compared with the golden machine's.
    """
    config = resolve(source, overrides)
    options = Options(skip_zero_tiles=skip_zero_tiles)
    if sentences is None and (calibration is not None or tokens):
        raise ValueError("Options --calibration and --tokens need --sentences")
    with progress(f"{model} on {config.name}, {simulator}") as update:
        if sentences is None:
            result = run_model(model, config, simulator, count, update, options, timing)
        else:
            result = run_sentences(
                model,
                config,
                simulator,
                sentences,
                calibration=calibration,
                tokens=tokens,
                count=count,
                progress=update,
                options=options,
                timing=timing,
            )
    report(f"{model} on {config.name}", [result], as_json, result)
    cycles_table(result, as_json)
