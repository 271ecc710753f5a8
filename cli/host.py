"""celosia host: a machine on a board, through its serial port."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import load
from celosia.cli.board_options import link_option
from celosia.cli.format_options import DECODER_KEYS, Formats, quantize_options
from celosia.cli.input_options import InputOptions, context_option, input_options, report_model
from celosia.cli.model_options import searched
from celosia.cli.options import json_option, override_option, seed_option
from celosia.cli.output import progress, report
from celosia.cli.paths import FILE, MODEL, read_bytes
from celosia.cli.prompt_options import prompts_option
from celosia.cli.text_options import ContinuationOptions, report_text, text_options
from celosia.cli.tree import Tree
from celosia.fpga.device import Device
from celosia.fpga.top import BAUD
from celosia.tb.machine.selftest import selftest as run_selftest


@click.group(cls=Tree)
@click.option(
    "--port",
    metavar="PORT",
    help="Serial port, as /dev/ttyUSB0, or SPI adapter, as ftdi://ftdi:232h/1.  [required]",
)
@click.option("--baud", type=int, default=BAUD, show_default=True, help="Bits a second.")
@click.option(
    "--config",
    "source",
    metavar="NAME_OR_TOML",
    help="The bitstream's configuration; without it, the preset or board's that it names.",
)
@override_option
@link_option
@click.pass_context
def host(
    context: click.Context,
    port: str | None,
    baud: int,
    link: str,
    source: str | None,
    overrides: tuple[str, ...],
) -> None:
    """Use a machine on a board, or on a simulated one (celosia board)."""
    if source is None and overrides:
        raise InputError("Option --set needs --config")
    config: Config | None = None if source is None else load(source, list(overrides))

    def connect() -> Device:
        # Commands open it, so that their --help needs no port.
        if port is None:
            raise click.MissingParameter(ctx=context, param=context.command.params[0])
        return Device.open(port, config, baud=baud, link=link)

    context.obj = connect


@host.command()
@json_option
@click.pass_obj
def info(connect, as_json: bool) -> None:
    """Show the board's identity."""
    device = connect()
    figures = {
        "port": device.name,
        "config": device.config.name,
        **asdict(device.identity),
        "configuration": f"{device.identity.configuration:08x}",
        "rows": device.config.array.rows,
        "cols": device.config.array.cols,
        "status": device.read_register("STATUS"),
    }
    device.close()
    report(f"The machine on {device.name}", [figures], as_json, figures)


@host.command(example="digits --count 4")
@click.argument("model", type=MODEL)
@input_options
@click.option("--answers", type=FILE, help="Texts with their right classes, a tab between.")
@click.option("--labels", type=FILE, help="The right class of each input, .npy or lines.")
@context_option
@prompts_option("What a text begins with; MODEL is as celosia run takes it.")
@click.option(
    "--contents",
    type=FILE,
    help="Present content of external memory, such as image.bin of celosia compile.",
)
@quantize_options(DECODER_KEYS)
@text_options
@seed_option
@json_option
@click.pass_obj
def run(
    connect,
    model: str,
    prompts: tuple[str, ...],
    contents: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Run MODEL, and compare its outputs with the golden machine's.

    With --prompt a text is continued. Without it the model runs on the given inputs, and a model of
    the digits on their test split.
    """
    inputs = InputOptions.of(values)
    if prompts and replace(inputs, calibration=None, tokens=0).given():
        raise InputError("Option --prompt is for texts to continue, and excludes other inputs")
    held = b"" if contents is None else read_bytes(contents)
    device = connect()
    device.contents = held
    clock, memory = device.identity.clock, device.identity.memory
    if not prompts:
        formats: Formats = values["formats"]
        options = searched(model, device.config, formats)
        with progress(f"{model} on {device.name}") as update:
            figures = inputs.run(
                model,
                device.config,
                device,
                update,
                options=options,
                memory_bytes=memory,
                bits=formats.bits,
            )
        rate = {"inferences_per_second": clock / figures["cycles_per_inference"]}
    else:
        options, asked = ContinuationOptions.of(values), (device.config, device)
        if len(prompts) > 1:
            figures = options.run_both(model, prompts, *asked, memory_bytes=memory)
        else:
            figures = options.run(model, *prompts, *asked, quiet=as_json, memory_bytes=memory)
        mean = figures["mean_cycles_per_token"]
        rate = {"tokens_per_second": clock / mean if mean else None}
    device.close()
    result = {
        **figures,
        "clock_mhz": clock / 1e6,
        **rate,
        "repeated_requests": device.repeated,
    }
    title = f"{model} on {device.name}"
    if not prompts:
        report_model(title, result, as_json)
    else:
        report_text(title, result, as_json)


@host.command(example="--programs 1")
@click.option(
    "--programs",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Random programs to run for each unit.",
)
@seed_option
@json_option
@click.pass_obj
def selftest(connect, programs: int, seed: int, as_json: bool) -> None:
    """Test memories and registers, and every unit against the golden model."""
    device = connect()
    with progress(f"selftest on {device.name}") as update:
        figures = run_selftest(
            device,
            device.config,
            device.identity.memory,
            programs=programs,
            seed=seed,
            progress=update,
        )
    device.close()
    result = {"seed": seed, **figures, "repeated_requests": device.repeated}
    memories = {
        name: {"result": "fail" if figures[key] else "pass"}
        for name, key in (("registers", "register_mismatches"), ("memory", "memory_mismatches"))
    }
    rows = [
        {"tested": name, **dict.fromkeys(("result", "programs", "failed", "uses")), **part}
        for name, part in (memories | figures["units"]).items()
    ]
    report(f"selftest on {device.name}", rows, as_json, result)
