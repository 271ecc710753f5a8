"""celosia compile: a model as files that run it elsewhere."""

from pathlib import Path

import click

from arch.config import Config
from arch.errors import InputError
from arch.micro.config import MicroConfig
from cli.bus_options import attached, attachment_options, check_module, top_option
from cli.model_options import model_options, searched
from cli.options import config_options, json_option, memory_options
from cli.output import check_folder, progress, report, warn, write_files
from cli.paths import FILE, MODEL
from generators.compiler import Options, compile_model
from generators.export.c_model import c_files
from generators.export.package import package
from generators.sources import load_source
from generators.verilog.manifest import manifest
from generators.verilog.verilog import to_verilog
from tb.export_inputs import COUNT, export_inputs, read_names
from tb.memory_timing import FAR, MemoryTiming
from tb.model_testbench import golden_outputs, model_testbench
from tb.plain_testbench import TOP, Attachment
from tb.run_inputs import Files


@click.command("compile")
@click.argument("model", type=MODEL)
@config_options("small")
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
@model_options
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
@memory_options(FAR)
@click.option("--out", "folder", type=FILE, required=True, help="Folder to write to.")
@json_option
def compile_command(
    model: str,
    config: Config,
    inputs: Path | None,
    sentences: Path | None,
    random: int,
    calibration: Path | None,
    tokens: int,
    count: int | None,
    names: Path | None,
    asked: tuple[Options, float | None],
    with_verilog: bool,
    with_testbench: bool,
    top: str | None,
    with_c: bool,
    attachment: Attachment,
    timing: MemoryTiming,
    folder: Path,
    as_json: bool,
) -> None:
    """Write MODEL (a name, a folder or an ONNX file) as files that run it elsewhere.

    The program, the memory image, and model.json with addresses, shapes, scales and cycles. What
    is expected of the inputs are the golden machine's integers. Where no inputs are given the model
    must be one of the digits, and gets those.
    """
    check_module("--top", top)
    options, config = searched(model, config, asked)
    check_folder(folder)
    files = Files(inputs=inputs, sentences=sentences, random=random, calibration=calibration)
    with_verilog = with_verilog or with_testbench
    if attachment != Attachment() and not with_verilog:
        raise InputError("Options --bus and --control need --verilog or --testbench")
    if top and not with_verilog:
        raise InputError("Option --top needs --verilog or --testbench")
    name = top or TOP
    with progress(f"{model} on {config.name}"):
        found = load_source(model, tokens)
        given = export_inputs(model, found, files, count)
        columns = given.names if names is None else read_names(names, found)
        compiled = compile_model(found.description, found.weights, given.samples, config, options)
        written = package(
            compiled, found, columns, latency=timing.latency, interval=timing.interval
        )
        outputs = golden_outputs(compiled, given.rows) if with_testbench or with_c else []
        if with_verilog:
            component = attached(config, attachment)
            written[f"{name}.v"] = to_verilog(component, name)
            written[f"{name}.json"] = manifest(component, name, config)
        if with_testbench:
            written |= model_testbench(compiled, given.rows, outputs, attachment, name)
        if with_c:
            written |= c_files(compiled, given.rows, outputs, columns)
        write_files(folder, written)
        apart = compiled.parting(found.weights, given.samples)
    warn(apart.warning)
    result = {
        "model": found.description.name,
        "config": config.name,
        "program_words": len(compiled.words),
        "image_bytes": len(compiled.image),
        "memory_bytes": compiled.memory_bytes,
        "predicted_cycles": None
        if isinstance(config, MicroConfig)
        else compiled.predict(timing.latency, timing.interval).cycles,
        "inputs": len(outputs),
        "calibration": apart.figures(),
        "folder": str(folder),
        "files": {name: len(content) for name, content in written.items()},
    }
    shown = {name: value for name, value in result.items() if name not in ("files", "calibration")}
    report(f"{model} on {config.name}", [shown], as_json, result)
    if not as_json:
        for name in written:
            click.echo(folder / name)
