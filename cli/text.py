"""celosia text: a language model goes on with a prompt on a machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.cli.input_options import report_model
from celosia.cli.options import (
    config_options,
    json_option,
    memory_options,
    seed_option,
    simulator_option,
)
from celosia.cli.output import report
from celosia.cli.paths import FILE, MODEL
from celosia.cli.prompt_options import prompts_option
from celosia.cli.text_options import ContinuationOptions, report_text, text_options
from celosia.cli.tree import Command
from celosia.generators.export.compiled_folder import is_compiled_text
from celosia.generators.frontend.sample_files import read_answers
from celosia.generators.frontend.text_sources import is_text
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import check_simulator
from celosia.tb.models.run_inputs import Files, run_files


@click.command(cls=Command, example='tales --prompt "one day a fox"')
@click.argument("checkpoint", type=MODEL)
@prompts_option("What the text begins with.")
@text_options
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="Texts, or token rows (.npy), to calibrate on; without it, what the model makes up.",
)
@click.option(
    "--answers",
    type=FILE,
    help="Questions with their answers, or texts with their classes, a tab between, one a line: "
    "the share that is right.",
)
@click.option("--count", type=click.IntRange(1), help="Answers to give; all without it.")
@config_options("story")
@simulator_option
@seed_option
@memory_options("far")
@json_option
def text(
    checkpoint: str,
    prompts: tuple[str, ...],
    config: Config,
    simulator: str,
    answers: Path | None,
    count: int | None,
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Go on with a prompt: CHECKPOINT is a llama2.c file, a Hugging Face folder, or a name.

    A folder that celosia compile wrote runs as it is, on its own configuration. An encoder-decoder
    answers the prompt. With --answers CHECKPOINT answers each question of a file, or, as a
    classifier of texts, finds the class of each, and so does the float model. Every tensor that the
    machine writes is compared with the golden machine's.
    """
    check_simulator(simulator)
    if answers is not None and len(prompts) > 1:
        raise InputError("Option --answers takes one --prompt at most, not 2")
    config = config.replace(trace=True)
    options = ContinuationOptions.of(values)
    if answers is not None and not (is_text(checkpoint) or is_compiled_text(checkpoint)):
        files = Files(answers=answers, calibration=options.calibration)
        result = run_files(checkpoint, config, simulator, files, count=count, timing=timing).figures
        report_model(f"{checkpoint} on {config.name}", result, as_json)
        return
    if answers is not None:
        given = read_answers(answers)[:count]
        result = options.answer(checkpoint, given, config, simulator, timing)
        report(f"{result['model']} on {result['config']}", [_shown(result)], as_json, result)
        return
    if len(prompts) > 1:
        result = options.run_both(checkpoint, prompts, config, simulator, timing=timing)
    else:
        prompt = prompts[0] if prompts else ""
        result = options.run(checkpoint, prompt, config, simulator, quiet=as_json, timing=timing)
    report_text(f"{result['model']} on {result['config']}", result, as_json)


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a table."""
    return {name: value for name, value in result.items() if name != "wrong"}
