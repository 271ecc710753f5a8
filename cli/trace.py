"""celosia trace: draws a model's run as a timeline, a roofline and a picture of utilization."""

import json
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.packages import Deferred
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.input_options import (
    context_option,
    inputs_option,
    random_count,
)
from celosia.cli.options import config_options, memory_options, simulator_option
from celosia.cli.output import as_json, cycles_table, progress, report, say
from celosia.cli.paths import FILE, MODEL
from celosia.cli.tree import Command
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.run_inputs import Files
from celosia.tb.models.timeline import timeline
from celosia.tb.models.trace_model import trace_model

_picture: Any = Deferred("celosia.tb.models.trace_picture", "Pictures need")


@click.command(cls=Command, example="digits --config small")
@click.argument("model", type=MODEL)
@config_options("small")
@click.option(
    "--out",
    "file",
    type=FILE,
    default=Path("build/trace.json"),
    show_default=True,
    help="File for the timeline; the pictures lie beside it.",
)
@simulator_option
@inputs_option
@context_option
@memory_options("far")
def trace(
    model: str,
    config: Config,
    file: Path,
    simulator: str,
    inputs: Path | None,
    tokens: int,
    context: int,
    sinks: int,
    timing: MemoryTiming,
) -> None:
    """Run MODEL once, and write a timeline of every engine's activity in each cycle.

    The timeline is for ui.perfetto.dev or chrome://tracing: a microsecond stands for a cycle. The
    command also writes two pictures into the timeline's folder: a roofline of the operations, and
    the array's utilization during the run.
    """
    if inputs is None and tokens:
        raise InputError("Option --context needs --inputs")
    names = [file.name, f"{file.stem}.roofline.png", f"{file.stem}.utilization.png"]
    check_folder(file.parent, names)
    title = f"{model} on {config.name}"
    with progress(f"{title}, {simulator}"):
        named, random = random_count(inputs)
        files = Files(inputs=named, random=random)
        traced = trace_model(model, config, simulator, timing, files, tokens)
        shown = timeline(
            traced.recording,
            traced.places,
            traced.operations,
            title=title,
            mem_bytes=config.mem_bytes,
        )
        pictures = [
            _picture.roofline(traced.operations, config, title),
            _picture.utilization(
                traced.recording,
                traced.operations,
                config,
                title,
                traced.figures["utilization"],
            ),
        ]
        contents = [json.dumps(shown), *map(_picture.png, pictures)]
        write_files(file.parent, dict(zip(names, contents, strict=True)))
    paths = [str(file.parent / name) for name in names]
    rows = [
        {
            "operation": row["name"],
            "cycles": row["cycles"],
            "utilization": f"{row['utilization']:.1%}",
            "macs": row["macs"],
            "loaded": row["loaded_bytes"],
            "stored": row["stored_bytes"],
        }
        for row in traced.figures["operations"]
    ]
    result = traced.figures | {"files": paths}
    if not as_json():
        report("Operations", rows, traced.figures)
    summary = {name: value for name, value in traced.figures.items() if not isinstance(value, list)}
    report(title, [summary], result)
    cycles_table(result)
    if not as_json():
        for path in paths:
            say(path)
