"""Options of the commands that run a model on inputs."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.support.writing import check_folder
from celosia.cli.options import Command, added
from celosia.cli.output import cycles_table, predictions_table, report, warn, write_array
from celosia.cli.paths import FILE
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.inference import Progress
from celosia.tb.models.run_inputs import Files, run_files

RANDOM = "random:"
"""Beginning of the value of ``--inputs`` for random inputs."""
inputs_option = click.option(
    "--inputs",
    type=FILE,
    help="A .npy or .npz file [count, ...], a folder of images or sounds, random:COUNT.",
)
sentences_option = click.option(
    "--sentences", type=FILE, help="Texts, one a line; a tab parts the two texts of a pair."
)
calibration_option = click.option(
    "--calibration", type=FILE, help="Texts or inputs to calibrate on."
)
_OPTIONS = (
    inputs_option,
    sentences_option,
    calibration_option,
    click.option("--output", type=FILE, help="File for the outputs, .npy."),
    click.option("--count", type=int, help="Inputs to run on; all without it."),
)


def input_options(command: Command) -> Command:
    """Add options for a model's inputs; :class:`InputOptions` takes the values."""
    return added(_OPTIONS, command)


def context_option(command: Command) -> Command:
    """Add ``--context``; the command gets ``context``, which is also ``tokens``, and ``sinks``."""

    @functools.wraps(command)
    def with_context(places: str, **named: Any) -> Any:
        words = places.split(":")
        if len(words) > 2 or not all(re.fullmatch(r"-?\d{1,18}", word) for word in words):
            raise InputError(f"Option --context takes TOKENS or TOKENS:SINKS, not {places!r}")
        context, sinks = int(words[0]), int((*words, SINKS)[1])
        if len(words) > 1 and 0 < context <= sinks:
            raise InputError(f"Option --context {places} must have fewer sinks than tokens")
        return command(context=context, tokens=context, sinks=sinks, **named)

    return click.option(
        "--context",
        "places",
        default="0",
        metavar="TOKENS[:SINKS]",
        help="Longest input, or tokens that a language model's cache has room for, its "
        f"first {SINKS} or SINKS never leaving it; the model's own without it, or with 0.",
    )(with_context)


SINKS = 4


def random_count(inputs: Path | None) -> tuple[Path | None, int]:
    """Return the file of ``--inputs``, and the number of random inputs that it requests."""
    text = str(inputs)
    if not text.startswith(RANDOM):
        return inputs, 0
    count = text.removeprefix(RANDOM)
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", count):
        raise InputError(f"Option --inputs {text} must have 1 input or more, not {count!r}")
    return None, int(count)


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Inputs of a model, and the file of its outputs."""

    inputs: Path | None
    sentences: Path | None
    answers: Path | None
    random: int
    calibration: Path | None
    labels: Path | None
    output: Path | None
    tokens: int
    count: int | None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the options among a command's values."""
        inputs, random = random_count(values["inputs"])
        changed = values | {"inputs": inputs, "random": random}
        return cls(**{name: changed.get(name) for name in cls.__dataclass_fields__})

    def given(self) -> bool:
        """Return whether any of the options is given."""
        return any(getattr(self, name) for name in self.__dataclass_fields__)

    def run(
        self,
        model: str,
        config: Config,
        machine: str | Machine,
        progress: Progress,
        *,
        options: Options | None = None,
        timing: MemoryTiming = PROMPT,
        memory_bytes: int | None = None,
        bits: Sequence[int] = (OPERAND_BITS,),
    ) -> dict[str, Any]:
        """Run a model and write its outputs, with the figures of ``celosia.tb.models.run_inputs``.

        If no inputs are given, the model must be one of the digits, and runs on their test split.
        """
        files = Files(
            inputs=self.inputs,
            sentences=self.sentences,
            answers=self.answers,
            random=self.random,
            calibration=self.calibration,
            labels=self.labels,
        )
        if self.output is not None:
            if self.output.suffix != ".npy":
                raise InputError(f"Output {self.output} must be a .npy file")
            check_folder(self.output.parent, [self.output.name])
        if not files.given():
            needing = ("calibration", "labels", "output", "tokens")
            for name in needing:
                if getattr(self, name):
                    option = "context" if name == "tokens" else name
                    raise InputError(f"Option --{option} needs --inputs or --sentences")
        ran = run_files(
            model,
            config,
            machine,
            files,
            tokens=self.tokens,
            count=self.count,
            memory_bytes=memory_bytes,
            progress=progress,
            options=options,
            timing=timing,
            bits=bits,
        )
        if (self.sentences or self.answers) and ran.figures["cut"]:
            warn(
                f"{ran.figures['cut']} of {ran.figures['count']} texts have more tokens than model "
                f"{model} takes, and are cut as its settings say"
            )
        if self.output is not None:
            write_array(self.output, ran.outputs)
            ran.figures["output"] = str(self.output)
        return ran.figures


_HIDDEN = (
    "predictions",
    "labels",
    "names",
    "similarities",
    "lengths",
    "counters",
    "calibration",
)


def report_model(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """Show the results of running a model, or print all of them as JSON.

    Exits with code 1 if a tensor differs from the golden machine's.
    """
    shown = {name: value for name, value in result.items() if name not in _HIDDEN}
    for name in ("host", "unused"):
        if name in shown:
            shown[name] = ", ".join(shown[name]) or None
    report(title, [shown], as_json, result)
    warn(result["calibration"]["warning"])
    predictions_table(result, as_json)
    cycles_table(result, as_json)
    if result["mismatches"]:
        raise SystemExit(1)
