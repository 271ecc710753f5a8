"""celosia run: a trained model on a machine."""

from typing import Any

import click

from cli.input_options import InputOptions, input_options, report_model
from cli.options import config_options, json_option, memory_options, resolve, simulator_option
from cli.output import progress
from generators.compiler import Options
from tb.memory_timing import FAR, MemoryTiming


@click.command()
@click.argument("model")
@config_options("small")
@simulator_option
@input_options("--tokens")
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
    percentile: float,
    balance: float,
    weights: str,
    skip_zero_tiles: bool,
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Run MODEL (a name, a folder or an ONNX file) on what is given, those of the digits on these.

    Every intermediate tensor is compared with the golden machine's.
    """
    config = resolve(source, overrides)
    options = Options(
        percentile=percentile,
        balance=balance,
        per_channel=weights == "channel",
        skip_zero_tiles=skip_zero_tiles,
    )
    given = InputOptions.of(values)
    with progress(f"{model} on {config.name}, {simulator}") as update:
        result = given.run(model, config, simulator, update, options=options, timing=timing)
    report_model(f"{model} on {config.name}", result, as_json)
