"""celosia run: a trained model on a machine."""

from typing import Any

import click

from celosia.arch.config import Config
from celosia.cli.format_options import RANGE_KEYS, Formats, quantize_options
from celosia.cli.input_options import InputOptions, input_options, report_model
from celosia.cli.model_options import ModelOptions, model_options, searched
from celosia.cli.options import config_options, json_option, memory_options, simulator_option
from celosia.cli.output import progress
from celosia.cli.paths import MODEL
from celosia.cli.tree import Command
from celosia.generators.lower.equipment import equipped
from celosia.tb.machine.memory_timing import MemoryTiming


@click.command(cls=Command, example="digits --config small --sim golden --count 10")
@click.argument("model", type=MODEL)
@config_options("small")
@simulator_option
@input_options("--tokens")
@quantize_options(RANGE_KEYS)
@model_options
@memory_options("far")
@json_option
def run(
    model: str,
    config: Config,
    simulator: str,
    ranges: ModelOptions,
    formats: Formats,
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Run MODEL (a name, a folder or an ONNX file) on what is given, those of the digits on these.

    Every intermediate tensor is compared with the golden machine's.
    """
    options = searched(model, config, formats, ranges)
    config = equipped(config, options)
    given = InputOptions.of(values)
    with progress(f"{model} on {config.name}, {simulator}") as update:
        result = given.run(
            model,
            config,
            simulator,
            update,
            options=options,
            timing=timing,
            bits=formats.bits,
        )
    report_model(f"{model} on {config.name}", result, as_json)
