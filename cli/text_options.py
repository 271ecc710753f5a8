"""Options of the commands that continue a text, and how they become arguments of the library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.cli.format_options import Formats
from celosia.cli.options import grouped
from celosia.cli.output import cycles_table, progress, report, say, warn
from celosia.compiling import compile_decoder
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.lower.text_compiler import TextOptions
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
    """Number of tokens, and sampling, with which a text is continued."""

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
        """Continue one text, shown as it grows unless ``quiet``, or two; return the figures."""
        loud = not quiet and len(prompts) == 1
        result = program.continue_texts(
            prompts,
            self.steps,
            machine,
            sampling=self.sampling,
            seed=seed,
            show=(lambda piece: say(piece, nl=False)) if loud else None,
            timing=timing,
            bits=bits,
        )
        if loud:
            say()
        return result


def quantized(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of quantization that texts and perplexity share, by their fields."""
    fields = {"kv_bits": "kv_bits", "whole": "kv_whole", "block": "kv_blocks"}
    fields |= {"folded": "folded", "deferred": "deferred"}
    return {field: values[option] for field, option in fields.items()}


def checked_steps(steps: int) -> int:
    """Return the number of tokens to add; raise :class:`InputError` if it is below 1."""
    if steps < 1:
        raise InputError(f"Steps must be at least 1, not {steps}")
    return steps


def _continuation(steps: int, temperature: float, top_p: float) -> Continuation:
    return Continuation(checked_steps(steps), Sampling(temperature, top_p))


text_options = grouped(
    "continuation",
    _continuation,
    steps_option,
    click.option(
        "--temperature", default=0.0, show_default=True, help="0 takes the likeliest token."
    ),
    click.option(
        "--top-p", default=1.0, show_default=True, help="Share of probability drawn from."
    ),
)
"""Adds how a text is continued; the command gets it as ``continuation``."""
CONTINUING = ("steps", "temperature", "top_p", "seed")
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
    """Return the compiled program of a language model, with the options that a command gets.

    The program continues ``texts`` texts in the same runs. Raises :class:`InputError` before any
    work if the model cannot continue one of the ``prompts`` by ``steps`` tokens.
    """
    formats: Formats = values["formats"]
    options = TextOptions(
        **quantized(values),
        sparse=formats.sparse,
        batch=texts,
        context=values["context"],
        sinks=values["sinks"],
        recompute=values["kv"] == "recompute",
        **formats.quantization,
    )
    loaded, calibration = load(model), values["calibration"]
    assert isinstance(loaded.source, TextSource)
    program = compile_decoder(
        loaded,
        config,
        None if calibration is None else loaded.source.read_calibration(calibration),
        options,
        loss=formats.loss,
        memory_bytes=memory_bytes,
        prompts=prompts,
        steps=steps,
        show=progress,
    )
    tell(program)
    return program


def tell(program: Program) -> None:
    """Print a program's warning, and the weight formats that a search found, on standard error."""
    if program.summary:
        say(f"celosia: {program.summary}", err=True)
    warn(None if program.parting is None else program.parting.warning)


def report_text(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """Show the figures of continued texts, or print all figures as JSON.

    If there are two texts, both texts are shown as well.
    """
    for entry in () if as_json else result.get("texts", ()):
        say(entry["text"])
    hidden = ("text", "texts", "tokens", "cycles", "counters", "calibration")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(title, [shown], as_json, result)
    cycles_table(result, as_json)
