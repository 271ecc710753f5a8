"""celosia text: a language model goes on with a prompt on a machine."""

from pathlib import Path
from typing import Any

import click

from cli.options import (
    config_options,
    json_option,
    memory_options,
    resolve,
    seed_option,
    simulator_option,
)
from cli.paths import MODEL
from cli.text_options import TextOptions, report_text, text_options
from tb.machines import check_simulator
from tb.memory_timing import FAR, MemoryTiming


@click.command()
@click.argument("checkpoint", type=MODEL)
@click.option("--prompt", default="", help="What the text begins with.")
@text_options
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="Texts, or token rows (.npy), to calibrate on; without it, what the model makes up.",
)
@config_options("story")
@simulator_option
@seed_option
@memory_options(FAR)
@json_option
def text(
    checkpoint: str,
    prompt: str,
    source: str,
    overrides: tuple[str, ...],
    simulator: str,
    timing: MemoryTiming,
    as_json: bool,
    **values: Any,
) -> None:
    """Go on with a prompt: CHECKPOINT is a llama2.c file, a Hugging Face folder, or a name.

    Every tensor that the machine writes is compared with the golden machine's.
    """
    check_simulator(simulator)
    config = resolve(source, overrides).replace(trace=True)
    result = TextOptions.of(values).run(
        checkpoint, prompt, config, simulator, quiet=as_json, timing=timing
    )
    report_text(f"{result['model']} on {config.name}", result, as_json)
