"""Options of the commands that run a model on inputs."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.support.writing import check_folder
from celosia.cli.format_options import Formats
from celosia.cli.model_options import encoder_options
from celosia.cli.options import Command, add_options
from celosia.cli.output import (
    cycles_table,
    predictions_table,
    progress,
    report,
    say,
    warn,
    write_array,
)
from celosia.cli.paths import FILE
from celosia.generators.runtime.interface import Machine
from celosia.programs import Program
from celosia.running import EncoderResult, run_files, run_folder
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.run_inputs import Files

RANDOM = "random:"
"""Beginning of the value of ``--inputs`` for random inputs."""
inputs_option = click.option(
    "--inputs",
    type=FILE,
    help="A .npy or .npz file [count, ...], a folder of images or sounds, a file of texts, or "
    "random:COUNT. A file has one text a line; a tab separates the two texts of a pair.",
)
calibration_option = click.option(
    "--calibration", type=FILE, help="Texts or inputs to calibrate on."
)
output_option = click.option("--output", type=FILE, help="File for the outputs, .npy.")
count_option = click.option("--count", type=int, help="Inputs to run on; all without it.")
_OPTIONS = (inputs_option, calibration_option, output_option, count_option)


def input_options(command: Command) -> Command:
    """Add ``--inputs``, ``--calibration``, ``--output`` and ``--count`` to a command.

    The command gets the options' values as arguments with the same names, such as ``inputs``.
    """
    return add_options(_OPTIONS, command)


def context_option(command: Command) -> Command:
    """Add the option ``--context TOKENS[:SINKS]`` to a command.

    The command gets TOKENS twice: as ``context``, the number of tokens for which a language model's
    cache has room, and as ``tokens``, the longest input of an encoder. TOKENS is 0 by default,
    which selects the model's default. The command gets SINKS, by default 4, as ``sinks``: the
    number of first tokens that always stay in the cache.
    """

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
    """Return the input file and the number of random inputs that ``--inputs`` asks for.

    If ``inputs`` is ``random:COUNT``, return (None, COUNT); otherwise return (``inputs``, 0).
    Raises :class:`InputError` if COUNT is not a number from 1 to 999999.
    """
    text = str(inputs)
    if not text.startswith(RANDOM):
        return inputs, 0
    count = text.removeprefix(RANDOM)
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", count):
        raise InputError(f"Option --inputs {text} must have 1 to 999999 inputs, not {count!r}")
    return None, int(count)


def input_files(values: Mapping[str, Any]) -> Files:
    """Return the paths of a run's input files, from the options of a command.

    The files contain inputs, answers, labels or calibration inputs. If ``--inputs`` is
    ``random:COUNT``, the field ``random`` of the result is COUNT, otherwise 0. ``values`` is a
    dictionary from the command's parameters to their values.
    """
    inputs, random = random_count(values["inputs"])
    names = ("answers", "labels", "calibration")
    return Files(inputs=inputs, random=random, **{name: values.get(name) for name in names})


def check_inputs(files: Files, values: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` if the options for inputs and outputs cannot be used.

    The value of ``--output`` must be a ``.npy`` file that can be written. If ``files`` has no
    inputs, ``--output``, ``--calibration`` and ``--context`` are errors. ``values`` is a dictionary
    from the command's parameters to their values.
    """
    output = values.get("output")
    if output is not None:
        if output.suffix != ".npy":
            raise InputError(f"Output {output} must be a .npy file")
        check_folder(output.parent, [output.name])
    if not files.given():
        for name in ("calibration", "output", "context"):
            if values.get(name):
                raise InputError(f"Option --{name} needs --inputs")


def run_encoder(
    model: str,
    config: Config,
    simulator: str,
    values: Mapping[str, Any],
    timing: MemoryTiming,
) -> dict[str, Any]:
    """Compile an encoder, run it on the inputs of ``--inputs``, and return measurements by name.

    The encoder's outputs are written to the file of ``--output``, if given. ``model`` is the
    encoder's name or path, ``simulator`` the name of a simulator. ``values`` is a dictionary from
    the command's parameters, such as ``inputs`` and ``count``, to their values.
    """
    formats: Formats = values["formats"]
    options, files = encoder_options(formats, config, values), input_files(values)
    check_inputs(files, values)
    ran = run_files(
        model,
        config,
        simulator,
        files,
        tokens=values["tokens"],
        count=values["count"],
        options=options,
        loss=formats.loss,
        show=progress,
        timing=timing,
        bits=formats.bits,
    )
    if ran.program.summary:
        say(f"celosia: {ran.program.summary}", err=True)
    return write_outputs(model, ran, files, values)


def run_compiled(
    program: Program,
    machine: str | Machine,
    values: Mapping[str, Any],
    timing: MemoryTiming,
) -> dict[str, Any]:
    """Run a compiled encoder on the inputs of ``--inputs``, and return measurements by name.

    The encoder's outputs are written to the file of ``--output``, if given. ``machine`` is a
    connected machine or a simulator's name. ``values`` is a dictionary from the command's
    parameters, such as ``inputs`` and ``count``, to their values.
    """
    files, formats = input_files(values), values.get("formats", Formats())
    check_inputs(files, values)
    how = {"count": values["count"], "show": progress, "timing": timing, "bits": formats.bits}
    ran = run_folder(program, machine, files, **how)
    return write_outputs(program.float_name, ran, files, values)


def write_outputs(
    model: str, ran: EncoderResult, files: Files, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Write an encoder's outputs to the file of ``--output``, if given; return the measurements.

    ``ran`` has the outputs and measurements of the encoder's runs. ``files`` are the paths of the
    runs' input files. ``values`` is a dictionary from the command's parameters to their values.
    Prints a warning if texts were cut because they had more tokens than the encoder ``model``
    accepts.
    """
    cut, output = ran.figures["cut"], values.get("output")
    if (files.are_texts or files.answers) and cut:
        warn(
            f"{cut} of {ran.figures['count']} texts have more tokens than model {model} takes, and "
            "are cut as its settings say"
        )
    if output is not None:
        write_array(output, ran.outputs)
        ran.figures["output"] = str(output)
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


def report_model(title: str, result: Mapping[str, Any]) -> None:
    """Print the measurements of an encoder's run as tables, or with ``--json`` as one JSON object.

    The tables omit lists and details; the JSON object has every entry of ``result``. Exits with
    code 1 if a tensor differs from the same tensor of the golden machine.
    """
    shown = {name: value for name, value in result.items() if name not in _HIDDEN}
    for name in ("host", "unused"):
        if name in shown:
            shown[name] = ", ".join(shown[name]) or None
    report(title, [shown], result)
    warn(result["calibration"]["warning"])
    predictions_table(result)
    cycles_table(result)
    if result["mismatches"]:
        raise SystemExit(1)
