"""celosia compile: compile a model to files with which another computer or a board runs it."""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.bus_options import (
    add_option,
    attached,
    attachment_options,
    check_modules,
    top_option,
)
from celosia.cli.format_options import MODEL_KEYS, Formats, quantize_options
from celosia.cli.input_options import (
    calibration_option,
    context_option,
    input_files,
    inputs_option,
)
from celosia.cli.model_options import batch_option, encoder_options
from celosia.cli.options import config_choice, memory_options
from celosia.cli.output import as_json, progress, report, say
from celosia.cli.paths import FILE, MODEL
from celosia.cli.prompt_options import prompts_option
from celosia.cli.run import refuse_other_kind
from celosia.cli.text_options import compiled_text, print_notes
from celosia.cli.tree import Command
from celosia.compiling import compile_encoder
from celosia.exporting import files
from celosia.generators.export.folder import outdated
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import is_text
from celosia.generators.lower.artefact import Artefact
from celosia.models import load
from celosia.programs import Program
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.export_inputs import COUNT, export_inputs, read_names
from celosia.tb.models.plain_testbench import TOP, Attachment


@click.command("compile", cls=Command, example="digits --config small --out build/digits")
@click.argument("model", type=MODEL)
@config_choice("small; story for a language model")
@inputs_option
@calibration_option
@context_option
@click.option("--count", type=int, help=f"Inputs for a testbench and C; {COUNT} without it.")
@click.option("--names", type=FILE, help="Names of the output's columns, a line each.")
@quantize_options(MODEL_KEYS)
@batch_option
@prompts_option("Text that a language model continues in the testbench and in C.")
@click.option(
    "--steps", type=click.IntRange(1), default=4, show_default=True, help="Tokens behind it."
)
@add_option(
    verilog="the accelerator",
    testbench="the Verilog, and a testbench that runs the model on the inputs under Icarus (slow: "
    "minutes for 50,000 cycles) or Verilator",
    c="a driver in C, and the model as C arrays",
)
@top_option
@attachment_options
@memory_options("far", sized=True)
@click.option("--out", "folder", type=FILE, help="Folder to write to; figures alone without it.")
def compile_command(
    model: str,
    configured: Callable[[str], Config],
    added: set[str],
    top: str | None,
    attachment: Attachment,
    folder: Path | None,
    **values: Any,
) -> None:
    """Compile MODEL (a name, a folder or an ONNX file), and write the files needed to run it.

    The command shows the predicted cycles, and the time and memory that compiling took. With --out
    and the name of a folder, it writes to the folder the program, the memory image, and model.json
    with addresses, shapes, scales and cycles. This folder can be the MODEL of celosia run and of
    celosia evaluate, and the FOLDER of celosia flash and of celosia host run.

    The program is checked before it is written: the golden machine, an exact model in software,
    must compute the integers of the quantized model. A program whose inference, or six tokens, take
    more than 10 million cycles is not checked (checked: False).

    With --add it also writes Verilog, a testbench or C files. The expected outputs in a testbench
    and in C files are integers computed by the golden machine.

    An encoder is calibrated on the inputs of --calibration. Without --calibration, an encoder of
    texts uses sentences that come with the package, and any other encoder uses the inputs of
    --inputs. Without both options, an encoder of handwritten digits uses images that come with the
    package.

    The command removes files that an earlier call wrote to the folder and the new call does not
    write. But it keeps such a file if it was changed after the earlier call.
    """
    check_modules(None, top)
    if folder is not None:
        check_folder(folder)
    elif added:
        raise InputError("Option --add needs --out")
    with_verilog = bool(added & {"verilog", "testbench"})
    if attachment != Attachment() and not with_verilog:
        raise InputError("Options --bus and --control need --add verilog or testbench")
    if top and not with_verilog:
        raise InputError("Option --top needs --add verilog or testbench")
    text, name = is_text(model), top or TOP
    refuse_other_kind(model, text=text)
    config = configured("story" if text else "small")
    if with_verilog:
        check_modules(attached(config, attachment), top)
    used = bool(added & {"testbench", "c"})
    make = _decoder if text else _encoder
    began, worked = time.perf_counter(), time.process_time()
    program, inputs = make(model, config, used, values)
    checked = program.is_short
    if checked:
        with progress(f"Check of {model}"):
            program.check()
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    timing: MemoryTiming = values["timing"]
    written: Mapping[str, str | bytes] = {}
    with progress(f"Files and figures of {model}"):
        if folder is not None:
            written = files(
                program.code,
                program.required_model.source,
                program.made,
                inputs,
                names=program.names,
                steps=values["steps"],
                verilog=with_verilog,
                c="c" in added,
                testbench="testbench" in added,
                attachment=attachment,
                top=name,
                timing=timing,
                bits=program.bits,
                origin=program.required_model.origin(folder),
            )
            write_files(folder, written, outdated(folder, written))
        result = _figures(program, timing, None if text else len(inputs) * used) | {
            "checked": checked,
            "seconds": seconds,
            "processor_seconds": worked,
            "peak_bytes": peak_bytes(),
            "folder": None if folder is None else str(folder),
            "files": {name: len(content) for name, content in written.items()},
        }
    hidden = ("files", "calibration", "plan")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(f"{model} on {program.config.name}", [shown], result)
    if not as_json() and folder is not None:
        for file in written:
            say(folder / file)
    if "testbench" in added:
        cycles = program.predicted(timing)
        runs = values["steps"] if text else len(inputs)
        offer = slow_testbench(program.config, cycles and cycles * runs, name)
        if offer:
            say(offer, err=True)


_ICARUS = 15_000
"""Cycles times array elements that Icarus simulates in a second, measured on tiny and small."""


def slow_testbench(config: Config, cycles: int | None, top: str) -> str | None:
    """Return a sentence that recommends Verilator for a slow testbench, or None for a fast one.

    A testbench is slow if Icarus would need more than a minute. ``cycles`` is the predicted number
    of cycles of the testbench; if it is unknown (None), the result is None. ``top`` is the name of
    the top module in the recommended command.
    """
    elements = config.array.rows * config.array.cols
    seconds = 0 if cycles is None else cycles * elements / _ICARUS
    if seconds <= 60:
        return None
    return (
        f"The testbench takes about {seconds / 60:.0f} minutes under Icarus ({cycles:,} cycles); "
        f"Verilator is faster: verilator --binary --x-initial unique {top}_tb.v {top}.v"
    )


def peak_bytes() -> int:
    """Return the largest amount of memory that this process has used at any time (bytes)."""
    # Linux counts in units of 1024 bytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _encoder(
    model: str, config: Config, _used: bool, values: Mapping[str, Any]
) -> tuple[Program, Sequence[Any]]:
    """Return an encoder's program, and rows of the machine's inputs."""
    formats: Formats = values["formats"]
    options = encoder_options(formats, config, values)
    bits = formats.one_bits("A model is compiled to begin")
    with progress(f"Reading {model}"):
        loaded = load(model, tokens=values["tokens"])
        assert isinstance(loaded.source, Source)
        samples = export_inputs(model, loaded.source, input_files(values), values["count"])
    names = samples.names if values["names"] is None else read_names(values["names"], loaded.source)
    program = compile_encoder(
        loaded,
        config,
        samples.samples,
        options,
        loss=formats.loss,
        memory_bytes=values["memory_bytes"],
        bits=bits,
        show=progress,
    )
    print_notes(program)
    return replace(program, names=names), samples.rows


def _decoder(
    model: str, config: Config, used: bool, values: Mapping[str, Any]
) -> tuple[Program, Sequence[str]]:
    """Return a language model's program, and the prompts."""
    bits = values["formats"].one_bits("A model is compiled for figures")
    prompts: Sequence[str] = values["prompts"] or ("",)
    program = compiled_text(
        model,
        config,
        values,
        memory_bytes=values["memory_bytes"],
        texts=len(prompts),
        prompts=prompts if used else (),
        steps=values["steps"],
    )
    return replace(program, bits=bits), prompts


def _figures(program: Program, timing: MemoryTiming, inputs: int | None) -> dict[str, Any]:
    """Return the figures of a program, of an encoder with the count of its inputs."""
    code = program.code
    sizes: dict[str, Any] = {"inputs": inputs}
    if isinstance(code, Artefact) and code.plan is not None:
        sizes |= {"image_bytes": len(code.image), "zero_tiles_left_out": code.left_out}
        sizes |= {"plan": asdict(code.plan)}
    if code.reads_tokens:
        sizes = {
            "setup_programs": len(code.setup),
            "image_bytes": sum(len(fill.image) for fill in code.setup),
            "resident": code.resident,
        }
    return {
        "model": program.name,
        "config": program.config.name,
        "program_words": program.words,
        **sizes,
        "memory_bytes": program.bytes,
        "predicted_cycles": program.predicted(timing),
        **program.made,
    }
