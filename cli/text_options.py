"""Options of the commands that continue a text, and their conversion to library arguments."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.cli.format_options import NORMS
from celosia.cli.options import as_one_argument
from celosia.cli.output import as_json, cycles_table, progress, report, say, warn
from celosia.compiling import compile_decoder
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.lower.checks import value_block
from celosia.generators.lower.options import Options
from celosia.generators.lower.text_compiler import skips_zeros
from celosia.generators.reference.sampling import Sampling
from celosia.generators.runtime.interface import Machine
from celosia.models import load
from celosia.programs import Program
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT

steps_option = click.option(
    "--steps", default=64, show_default=True, help="Tokens to add, at most."
)


@dataclass(frozen=True)
class Continuation:
    """Settings for the continuation of a text: the number of new tokens, and the sampling."""

    steps: int
    sampling: Sampling

    def run(
        self,
        program: Program,
        prompts: Sequence[str],
        machine: str | Machine,
        *,
        seed: int,
        quiet: bool,
        timing: MemoryTiming = PROMPT,
        bits: Sequence[int] = (OPERAND_BITS,),
    ) -> dict[str, Any]:
        """Continue one or two texts on a machine, and return measurements by name.

        ``prompts`` are the beginnings of the texts. ``machine`` is a connected machine or a
        simulator's name. If there is one text and ``quiet`` is false, the text is printed while it
        is generated. The other arguments are those of
        :meth:`celosia.programs.Program.continue_texts`.
        """
        loud = not quiet and len(prompts) == 1
        with ExitStack() as waiting:
            waiting.enter_context(progress(f"{program.name} on {program.config.name}"))

            def show(piece: str) -> None:
                # From here on the text itself grows.
                waiting.close()
                say(piece, nl=False)

            result = program.continue_texts(
                prompts,
                self.steps,
                machine,
                sampling=self.sampling,
                seed=seed,
                show=show if loud else None,
                timing=timing,
                bits=bits,
            )
        if loud:
            say()
        return result


def quantized(values: Mapping[str, Any], model: TextDescription, config: Config) -> dict[str, Any]:
    """Return the quantizer's keyword arguments for a language model, from a command's options.

    ``values`` is a dictionary from the command's parameters, such as ``kv`` and ``norms``, to their
    values. ``model`` is the language model's description, ``config`` the machine's configuration.
    """
    kept = values["kv"]
    return {
        "kv_bits": 4 if kept.startswith("int4") else OPERAND_BITS,
        "block": value_block(model, config) if kept == "int4-blocks" else 0,
        "whole": values["kv_whole"],
        **NORMS[values["norms"]],
        **values["formats"].quantization,
    }


def checked_steps(steps: int) -> int:
    """Return ``steps``, the number of tokens to add to a text.

    Raises :class:`InputError` if ``steps`` is below 1.
    """
    if steps < 1:
        raise InputError(f"Steps must be at least 1, not {steps}")
    return steps


def _continuation(steps: int, temperature: str) -> Continuation:
    try:
        numbers = [float(text) for text in temperature.split(":")]
        sampling = Sampling(*numbers)
    except (ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"Option --temperature takes NUMBER or NUMBER:TOP_P as 0.8:0.9, not {temperature!r}"
        ) from None
    return Continuation(checked_steps(steps), sampling)


text_options = as_one_argument(
    "continuation",
    _continuation,
    steps_option,
    click.option(
        "--temperature",
        default="0",
        show_default=True,
        metavar="NUMBER[:TOP_P]",
        help="0 takes the likeliest token; others are drawn, from the share TOP_P of probability.",
    ),
)
"""Adds how a text is continued; the command gets it as ``continuation``."""
CONTINUING = ("steps", "temperature", "seed")
"""Parameters of how a text is continued."""


def compiled_text(
    model: str,
    config: Config,
    values: Mapping[str, Any],
    *,
    memory_bytes: int | None = None,
    prompts: Sequence[str] = (),
    texts: int = 1,
    steps: int = 1,
) -> Program:
    """Compile a language model with the options of a command, and return the program.

    ``values`` is a dictionary from the command's parameters to their values. The program continues
    ``texts`` texts in each run. ``memory_bytes`` is the size of external memory (bytes), or None
    for all that the configuration can address. Raises :class:`InputError` if one of ``prompts``,
    continued by ``steps`` tokens, is longer than the model allows.
    """
    with progress(f"Reading {model}"):
        loaded, calibration = load(model), values["calibration"]
    assert isinstance(loaded.source, TextSource)
    options = Options(
        **quantized(values, loaded.source.description, config),
        sparse=skips_zeros(config),
        batch=texts,
        context=values["context"],
        sinks=values["sinks"],
        recompute=values["kv"] == "recompute",
    )
    program = compile_decoder(
        loaded,
        config,
        None if calibration is None else loaded.source.read_calibration(calibration),
        options,
        loss=values["formats"].loss,
        memory_bytes=memory_bytes,
        prompts=prompts,
        steps=steps,
        show=progress,
    )
    print_notes(program)
    return program


def print_notes(program: Program) -> None:
    """Print notes about a compiled program to standard error.

    If the compiler has searched for weight formats, the chosen formats are printed. If the
    quantized model's outputs are far from those of the float model, a warning is printed.
    """
    if program.summary:
        say(f"celosia: {program.summary}", err=True)
    warn(None if program.parting is None else program.parting.warning)


def report_text(title: str, result: Mapping[str, Any]) -> None:
    """Print measurements of a language model that has continued one or two texts.

    If ``--json`` is given, ``result`` is printed as one JSON object. Otherwise the measurements are
    printed as tables, below the texts if there are two. A single text is not printed, because
    :meth:`Continuation.run` has already printed it.
    """
    for entry in () if as_json() else result.get("texts", ()):
        say(entry["text"])
    hidden = ("text", "texts", "tokens", "cycles", "counters", "calibration")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(title, [shown], result)
    cycles_table(result)
