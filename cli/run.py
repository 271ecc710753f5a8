"""celosia run: a trained model on a machine."""

from typing import Any

import click

from arch.config import Config
from cli.input_options import InputOptions, input_options, report_model
from cli.model_options import model_options, searched
from cli.options import BITS_OPTION, config_options, json_option, memory_options, simulator_option
from cli.output import progress
from cli.paths import MODEL
from generators.compiler import Options
from generators.nested import check_bits
from tb.memory_timing import FAR, MemoryTiming


@click.command()
@click.argument("model", type=MODEL)
@config_options("small")
@simulator_option
@input_options("--tokens")
@model_options
@BITS_OPTION
@memory_options(FAR)
@json_option
def run(
    model: str,
    config: Config,
    simulator: str,
    asked: tuple[Options, float | None],
    bits: tuple[int, ...],
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Run MODEL (a name, a folder or an ONNX file) on what is given, those of the digits on these.

    Every intermediate tensor is compared with the golden machine's.
    """
    check_bits(bits, asked[0].weights)
    options, config = searched(model, config, asked)
    given = InputOptions.of(values)
    with progress(f"{model} on {config.name}, {simulator}") as update:
        result = given.run(
            model, config, simulator, update, options=options, timing=timing, bits=bits
        )
    report_model(f"{model} on {config.name}", result, as_json)
