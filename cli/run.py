"""celosia run: a trained model on a machine."""

import click

from cli.options import config_options, json_option, resolve, simulator_option
from cli.output import cycles_table, progress, report
from generators.compiler import Options
from tb.run_model import run_model


@click.command()
@click.argument("model")
@config_options("small")
@simulator_option
@click.option("--count", type=int, help="Images of the test split; all without it.")
@click.option("--skip-zero-tiles", is_flag=True, help="Mask weight tiles that are all zero.")
@json_option
def run(
    model: str,
    source: str,
    overrides: tuple[str, ...],
    simulator: str,
    count: int | None,
    skip_zero_tiles: bool,
    as_json: bool,
) -> None:
    """Run MODEL (a name or a folder) on the digits' test split.

    Every intermediate tensor is compared with the golden machine's.
    """
    config = resolve(source, overrides)
    options = Options(skip_zero_tiles=skip_zero_tiles)
    with progress(f"{model} on {config.name}, {simulator}") as update:
        result = run_model(model, config, simulator, count, update, options)
    report(f"{model} on {config.name}", [result], as_json, result)
    cycles_table(result, as_json)
