"""celosia run: a trained model on a machine, an encoder on inputs or a language model on a text."""

from collections.abc import Callable
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.cli.format_options import DECODER_KEYS, RANGE_KEYS, Formats, quantize_options
from celosia.cli.input_options import InputOptions, context_option, input_options, report_model
from celosia.cli.model_options import ModelOptions, model_options, searched
from celosia.cli.options import (
    config_choice,
    given_options,
    json_option,
    memory_options,
    seed_option,
    simulator_option,
)
from celosia.cli.output import progress
from celosia.cli.paths import MODEL
from celosia.cli.prompt_options import prompts_option
from celosia.cli.text_options import ContinuationOptions, report_text, text_options
from celosia.cli.tree import Command
from celosia.generators.export.compiled_folder import is_compiled_text
from celosia.generators.frontend.text_sources import is_text
from celosia.generators.lower.equipment import equipped
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import check_simulator

ENCODER_ONLY = ("inputs", "sentences", "output", "count", *ModelOptions.__dataclass_fields__)
DECODER_ONLY = (
    *("prompts", "tokenizer", "steps", "temperature", "top_p", "seed"),
    *(key.name for key in DECODER_KEYS.values()),
)
"""Parameters that one kind of model does not take."""


@click.command(cls=Command, example="digits --config small --sim golden --count 10")
@click.argument("model", type=MODEL)
@config_choice("small; story for a language model")
@simulator_option
@input_options
@context_option
@prompts_option("What a language model's text begins with.")
@quantize_options(RANGE_KEYS, DECODER_KEYS)
@model_options
@text_options
@seed_option
@memory_options("far")
@json_option
def run(
    model: str,
    configured: Callable[[str], Config],
    simulator: str,
    prompts: tuple[str, ...],
    ranges: ModelOptions,
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Run MODEL: a name, a folder, an ONNX file, a llama2.c file, or a compiled folder.

    An encoder runs on its inputs, without them on the test split of the digits. A language model
    continues the prompt, an encoder-decoder answers it. Every tensor that the machine writes is
    compared with the golden machine's.
    """
    check_simulator(simulator)
    text = is_text(model) or is_compiled_text(model)
    refuse_other_kind(model, ENCODER_ONLY if text else DECODER_ONLY, text=text)
    config = configured("story" if text else "small")
    if not text:
        formats: Formats = values["formats"]
        asked = searched(model, config, formats, ranges)
        config = equipped(config, asked)
        with progress(f"{model} on {config.name}, {simulator}") as update:
            result = InputOptions.of(values).run(
                model,
                config,
                simulator,
                update,
                options=asked,
                timing=timing,
                bits=formats.bits,
            )
        report_model(f"{model} on {config.name}", result, as_json)
        return
    config = config.replace(trace=True)
    options = ContinuationOptions.of(values)
    if len(prompts) > 1:
        result = options.run_both(model, prompts, config, simulator, timing=timing)
    else:
        prompt = prompts[0] if prompts else ""
        result = options.run(model, prompt, config, simulator, quiet=as_json, timing=timing)
    report_text(f"{result['model']} on {result['config']}", result, as_json)


def refuse_other_kind(model: str, names: tuple[str, ...], *, text: bool) -> None:
    """Raise :class:`InputError` if an option is given that the kind of model does not accept."""
    refused = given_options(names)
    if refused:
        kind = "a language model" if text else "an encoder"
        raise InputError(f"Option {refused[0]} is not for {model}, which is {kind}")
