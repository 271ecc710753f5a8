"""celosia compile: a model as files that run it elsewhere."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.micro.config import MicroConfig
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.bus_options import attached, attachment_options, check_modules, top_option
from celosia.cli.format_options import DECODER_KEYS, RANGE_KEYS, Formats, quantize_options
from celosia.cli.model_options import ModelOptions, model_options, searched
from celosia.cli.options import config_choice, given_options, json_option, memory_options
from celosia.cli.output import progress, report, say, warn
from celosia.cli.paths import FILE, MODEL
from celosia.cli.prompt_options import prompts_option
from celosia.cli.text_options import DecoderOptions, decoder_options
from celosia.cli.tree import Command
from celosia.generators.export.c_model import c_files
from celosia.generators.export.c_text import text_c_files
from celosia.generators.export.folder import outdated, with_digests
from celosia.generators.export.package import MANIFEST, package
from celosia.generators.export.text_package import text_package
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import is_text
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.equipment import equipped
from celosia.generators.verilog.manifest import manifest
from celosia.generators.verilog.verilog import to_verilog
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.export_inputs import COUNT, export_inputs, read_names
from celosia.tb.models.model_testbench import golden_outputs, model_testbench
from celosia.tb.models.plain_testbench import TOP, Attachment
from celosia.tb.models.run_inputs import Files, check_room
from celosia.tb.models.text_samples import text_samples
from celosia.tb.models.text_testbench import text_testbench

Written = dict[str, str | bytes]
ENCODER_ONLY = (
    *("inputs", "sentences", "random", "count", "names", "tokens"),
    *ModelOptions.__dataclass_fields__,
)
DECODER_ONLY = (
    *(set(DecoderOptions.__dataclass_fields__) - {"formats", "calibration"}),
    *("prompts", "steps"),
)
"""Parameters of the command that one kind of model does not take."""


@click.command("compile", cls=Command, example="digits --config small --out build/digits")
@click.argument("model", type=MODEL)
@config_choice("small; story for a language model")
@click.option(
    "--inputs", type=FILE, help="A .npy file [count, ...], or a folder of images or .wav."
)
@click.option("--sentences", type=FILE, help="A file's lines, for a model of texts.")
@click.option("--random", type=click.IntRange(min=0), default=0, help="So many random inputs.")
@click.option("--calibration", type=FILE, help="Texts or inputs to calibrate on.")
@click.option(
    "--tokens", type=int, default=0, help="Longest input (tokens); 0 for the model's own."
)
@click.option("--count", type=int, help=f"Inputs for --testbench and --c; {COUNT} without it.")
@click.option("--names", type=FILE, help="Names of the output's columns, a line each.")
@quantize_options(RANGE_KEYS, DECODER_KEYS)
@model_options
@decoder_options
@prompts_option("What a language model takes in --testbench and --c.")
@click.option(
    "--steps", type=click.IntRange(1), default=4, show_default=True, help="Tokens behind it."
)
@click.option("--verilog", "with_verilog", is_flag=True, help="Add the accelerator's Verilog.")
@click.option(
    "--testbench",
    "with_testbench",
    is_flag=True,
    help="Add the Verilog, and a testbench that runs the model on the inputs under Icarus.",
)
@top_option
@click.option("--c", "with_c", is_flag=True, help="Add a driver in C, and the model as C arrays.")
@attachment_options
@memory_options("far", sized=True)
@click.option("--out", "folder", type=FILE, required=True, help="Folder to write to.")
@json_option
def compile_command(
    model: str,
    configured: Callable[[str], Config],
    with_verilog: bool,
    with_testbench: bool,
    top: str | None,
    attachment: Attachment,
    folder: Path,
    as_json: bool,
    **values: Any,
) -> None:
    """Write MODEL (a name, a folder or an ONNX file) as files that run it elsewhere.

    The program, the memory image, and model.json with addresses, shapes, scales and cycles. What
    is expected of the inputs are the golden machine's integers. Where no inputs are given an
    encoder must be one of the digits, and gets those. A language model is as celosia text takes it,
    which runs the folder, as celosia host run does. What an earlier call left in the folder is
    removed, if nobody has changed it since.
    """
    check_modules(None, top)
    check_folder(folder)
    with_verilog |= with_testbench
    if attachment != Attachment() and not with_verilog:
        raise InputError("Options --bus and --control need --verilog or --testbench")
    if top and not with_verilog:
        raise InputError("Option --top needs --verilog or --testbench")
    text, name = is_text(model), top or TOP
    refused = given_options(ENCODER_ONLY if text else DECODER_ONLY)
    if refused:
        kind = "a language model" if text else "an encoder"
        raise InputError(f"Option {refused[0]} is not for {model}, which is {kind}")
    compiled = _decoder if text else _encoder
    config = configured("story" if text else "small")
    if with_verilog:
        check_modules(attached(config, attachment), top)
    bench = (attachment, name) if with_testbench else None
    config, written, result = compiled(model, config, bench, values)
    if with_verilog:
        component = attached(config, attachment)
        written[f"{name}.v"] = to_verilog(component, name)
        written[f"{name}.json"] = manifest(component, name, config)
    written = with_digests(written)
    write_files(folder, written, outdated(folder, written))
    result |= {
        "folder": str(folder),
        "files": {name: len(content) for name, content in written.items()},
    }
    shown = {name: value for name, value in result.items() if name not in ("files", "calibration")}
    report(f"{model} on {config.name}", [shown], as_json, result)
    if not as_json:
        for name in written:
            say(folder / name)


Bench = tuple[Attachment, str]
"""The ports of a testbench's accelerator, and its module."""


def _encoder(
    model: str, config: Config, bench: Bench | None, values: Mapping[str, Any]
) -> tuple[Config, Written, dict[str, Any]]:
    """Return the configuration, the files and the figures of an encoder."""
    formats: Formats = values["formats"]
    timing: MemoryTiming = values["timing"]
    options = searched(model, config, formats, values["ranges"])
    config = equipped(config, options)
    bits = formats.one_bits("A model is compiled to begin")
    files = Files(**{each: values[each] for each in ("inputs", "sentences", "random")})
    files = replace(files, calibration=values["calibration"])
    with progress(f"{model} on {config.name}"):
        found = load_source(model, values["tokens"])
        given = export_inputs(model, found, files, values["count"])
        columns = given.names if values["names"] is None else read_names(values["names"], found)
        compiled = compile_model(found.description, found.weights, given.samples, config, options)
        if values["memory_bytes"] is not None:
            check_room(compiled, values["memory_bytes"])
        written = package(
            compiled,
            found,
            columns,
            latency=timing.latency,
            interval=timing.interval,
            bits=bits,
        )
        runs = compiled.runs(given.rows)
        if bench is not None:
            written |= model_testbench(compiled, runs, *bench, bits=bits)
        if values["with_c"]:
            outputs = golden_outputs(compiled, runs, bits)
            written |= c_files(compiled, runs, outputs, columns, bits=bits)
        apart = compiled.parting(found.weights, given.samples)
    warn(apart.warning)
    cycles = None
    if not isinstance(config, MicroConfig):
        cycles = compiled.predict(timing.latency, timing.interval, bits=bits).cycles
    result = {
        "model": found.description.name,
        "config": config.name,
        **formats.figures,
        "program_words": len(compiled.words),
        "image_bytes": len(compiled.image),
        "memory_bytes": compiled.memory_bytes,
        "weight_bytes": compiled.quantized.weight_bytes,
        "predicted_cycles": cycles,
        "inputs": len(given.rows) if bench is not None or values["with_c"] else 0,
        "calibration": apart.figures(),
    }
    return config, written, result


def _decoder(
    model: str, config: Config, bench: Bench | None, values: Mapping[str, Any]
) -> tuple[Config, Written, dict[str, Any]]:
    """Return the configuration, the files and the figures of a decoder."""
    timing: MemoryTiming = values["timing"]
    options = DecoderOptions.of(values)
    bits = options.formats.one_bits("A model is compiled for figures")
    prompts: Sequence[str] = values["prompts"] or ("",)
    room, texts = values["memory_bytes"], len(prompts)
    given = prompts if bench or values["with_c"] else ()
    found = options.compiled(
        model, config, room, fixed=False, texts=texts, prompts=given, steps=values["steps"]
    )
    assert found.source is not None
    program, config = found.program, found.program.config
    written = text_package(
        program,
        found.source,
        found.figures,
        latency=timing.latency,
        interval=timing.interval,
        bits=bits,
    )
    asked = (program, found.tokenizer, prompts)
    if bench is not None:
        written |= text_testbench(*asked, values["steps"], *bench, bits=bits)
    if values["with_c"]:
        samples = text_samples(*asked, values["steps"], "golden", bits)
        written |= text_c_files(program, found.tokenizer, samples, bits)
    result = {
        "model": program.name,
        "config": config.name,
        "program_words": len(program.words),
        "setup_programs": len(program.setup),
        "image_bytes": sum(len(fill.image) for fill in program.setup),
        "memory_bytes": program.memory_bytes,
        "resident": program.resident,
        "predicted_cycles": json.loads(written[MANIFEST])["cycles"],
        **found.figures,
    }
    return config, written, result
