"""celosia run: runs an encoder on inputs, or a language model on a text, on a machine."""

from collections.abc import Callable
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.cli.format_options import DECODER_KEYS, MODEL_KEYS, quantize_options
from celosia.cli.input_options import (
    context_option,
    input_options,
    report_model,
    run_compiled,
    run_encoder,
)
from celosia.cli.model_options import RANGES, batch_option
from celosia.cli.options import (
    config_choice,
    given_options,
    memory_options,
    refuse_given,
    seed_option,
    simulator_option,
)
from celosia.cli.output import as_json, progress
from celosia.cli.paths import MODEL
from celosia.cli.prompt_options import prompts_option
from celosia.cli.text_options import (
    CONTINUING,
    Continuation,
    compiled_text,
    report_text,
    text_options,
)
from celosia.cli.tree import Command
from celosia.generators.export.compiled_folder import is_compiled
from celosia.generators.frontend.sources import refuse_empty
from celosia.generators.frontend.text_sources import is_text
from celosia.opening import open_compiled
from celosia.programs import Program
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import check_simulator

ENCODER_ONLY = ("inputs", "output", "count", "names", "batch", *RANGES)
DECODER_ONLY = (
    *("prompt", "prompts", *CONTINUING),
    *(key.name for key in DECODER_KEYS.values()),
)
"""Parameters that one kind of model does not take."""
_COMPILED = (
    *("source", "overrides", "places", "calibration", "batch"),
    *(key.name for key in MODEL_KEYS.values() if key.name != "bits"),
)
"""Parameters that a compiled folder has answered."""


@click.command(cls=Command, example="digits --config small --sim golden --count 10")
@click.argument("model", type=MODEL)
@config_choice("small; story for a language model")
@simulator_option
@input_options
@context_option
@prompts_option("What a language model's text begins with.")
@quantize_options(MODEL_KEYS)
@batch_option
@text_options
@seed_option
@memory_options("far")
def run(
    model: str,
    configured: Callable[[str], Config],
    simulator: str,
    prompts: tuple[str, ...],
    continuation: Continuation,
    seed: int,
    timing: MemoryTiming,
    **values: Any,
) -> None:
    """Run MODEL on a machine.

    MODEL is the name of a model, or a path. The path is that of an ONNX file, a llama2.c file, a
    Hugging Face folder or a folder that celosia compile wrote.

    An encoder runs on the inputs of --inputs. Without --inputs, an encoder that recognizes digits
    runs on test images; any other encoder needs --inputs. A language model continues the prompt; an
    encoder-decoder answers the prompt. Every tensor that the machine writes is compared with the
    same tensor of the golden machine.
    """
    check_simulator(simulator)
    program = folder_program(model) if is_compiled(model) else None
    text = is_text(model) if program is None else program.code.reads_tokens
    refuse_other_kind(model, text=text)
    if not text and program is None:
        result = run_encoder(model, configured("small"), simulator, values, timing)
    elif not text and program is not None:
        result = run_compiled(program, simulator, values, timing)
    if not text:
        report_model(f"{model} on {result['config']}", result)
        return
    some = prompts or ("",)
    if program is None:
        how = {"texts": len(some), "prompts": some, "steps": continuation.steps}
        program = compiled_text(model, configured("story"), values, **how)
    bits = values["formats"].bits
    how = {"seed": seed, "quiet": as_json(), "timing": timing, "bits": bits}
    result = continuation.run(program, some, simulator, **how)
    report_text(f"{result['model']} on {result['config']}", result)


def folder_program(folder: str) -> Program:
    """Return the program in a folder that celosia compile wrote.

    Raises :class:`InputError` if the command line has an option for compiling a model, because the
    model in the folder is compiled already.
    """
    stated = given_options(_COMPILED)
    if stated:
        raise InputError(
            f"Option {stated[0]} is not for {folder}, which is compiled; give it to celosia compile"
        )
    with progress(f"Reading {folder}"):
        return open_compiled(folder)


def refuse_other_kind(model: str, *, text: bool) -> None:
    """Raise :class:`InputError` if the user has given an option for the other kind of model.

    The kinds are encoders and language models. ``model`` is the model's name or path. ``text`` is
    true for a language model, false for an encoder. The error is also raised if ``model`` is a
    folder without a model.
    """
    if not text:
        refuse_empty(model)
    kind, names = ("a language model", ENCODER_ONLY) if text else ("an encoder", DECODER_ONLY)
    refuse_given(f"{model}, which is {kind}", *names)
