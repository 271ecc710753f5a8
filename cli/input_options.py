"""Options of the commands that run a model on inputs."""

from collections.abc import Callable, Mapping, Sequence
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

_OPTIONS = (
    click.option(
        "--inputs", type=FILE, help="A .npy file [count, ...], or a folder of images or sounds."
    ),
    click.option(
        "--sentences", type=FILE, help="Texts, one a line; a tab parts the two texts of a pair."
    ),
    click.option("--answers", type=FILE, help="Texts with their right classes, a tab between."),
    click.option("--random", type=click.IntRange(min=0), default=0, help="So many random inputs."),
    click.option("--calibration", type=FILE, help="Texts or inputs to calibrate on."),
    click.option("--labels", type=FILE, help="The right class of each input, .npy or lines."),
    click.option("--output", type=FILE, help="File for the outputs, .npy."),
    click.option("--count", type=int, help="Inputs to run on; all without it."),
)


def input_options(length: str) -> Callable[[Command], Command]:
    """Add what a model is run on; ``length`` is the name of the option for the longest input.

    :class:`InputOptions` takes the values.
    """

    def add(command: Command) -> Command:
        text = "Longest input (tokens); 0 for the model's own."
        command = click.option(length, "tokens", type=int, default=0, help=text)(command)
        return added(_OPTIONS, command)

    return add


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
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

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

        Where no inputs are given the model must be one of the digits, and runs on their test
        split.
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
                    raise InputError(f"Option --{name} needs --inputs, --sentences or --random")
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
    """Show what running a model gave, or print all of it as JSON.

    Exits with code 1 where a tensor differs from the golden machine's.
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
