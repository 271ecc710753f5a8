"""celosia host: commands that use a machine on a board through its serial port or SPI."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.boards import open_port
from celosia.cli.input_options import (
    count_option,
    inputs_option,
    output_option,
    report_model,
    run_compiled,
)
from celosia.cli.options import seed_option
from celosia.cli.output import as_json, progress, report
from celosia.cli.paths import FILE, MODEL, read_bytes
from celosia.cli.prompt_options import prompts_option
from celosia.cli.run import refuse_other_kind
from celosia.cli.text_options import Continuation, report_text, text_options
from celosia.cli.tree import Tree
from celosia.fpga.device import Device
from celosia.fpga.top import BAUD
from celosia.machines import machine
from celosia.opening import open_compiled
from celosia.tb.machine.memory_timing import ONCHIP
from celosia.tb.machine.selftest import selftest as run_selftest
from celosia.tb.models.run_inputs import check_room


@dataclass(frozen=True)
class PortOptions:
    """The values of the options of ``celosia host``: a machine's port, bit rate and configuration.

    :meth:`open` connects to the machine.
    """

    port: str | None
    baud: int
    config: Config | None
    missing: click.MissingParameter

    def required_port(self) -> str:
        """Return the name of the board's port, the value of ``--port``.

        Raises :class:`click.MissingParameter` if the user has not given ``--port``.
        """
        if self.port is None:
            raise self.missing
        return self.port

    def open(self, config: Config | None = None) -> Device:
        """Connect to the board at the port of ``--port``, and return the machine on the board.

        The machine's configuration is the first of these that is given:

        - the argument ``config``;
        - the configuration of the option ``--config``;
        - the configuration of a preset or board whose fingerprint (hash) the bitstream reports.
        """
        return open_port(self.required_port(), config or self.config, self.baud)


@click.group(cls=Tree)
@click.option(
    "--port",
    metavar="PORT",
    help="Serial port, as /dev/ttyUSB0, or SPI, as ftdi://ftdi:232h/1 or of a simulated board "
    "spi:/dev/pts/3.  [required]",
)
@click.option("--baud", type=int, default=BAUD, show_default=True, help="Bits a second.")
@click.option(
    "--config",
    "source",
    metavar="NAME_OR_TOML",
    help="The bitstream's configuration; without it, that of the folder to run, or the preset or "
    "board's that the bitstream names.",
)
@click.pass_context
def host(context: click.Context, port: str | None, baud: int, source: str | None) -> None:
    """Use a machine on an FPGA board, or on a board that `celosia board` simulates."""
    missing = click.MissingParameter(ctx=context, param=context.command.params[0])
    context.obj = PortOptions(port, baud, None if source is None else machine(source), missing)


@host.command()
@click.pass_obj
def info(options: PortOptions) -> None:
    """Show the clock, memory size and other facts that the machine on the board reports.

    The command also shows the name of the machine's configuration, and the register STATUS.
    """
    device = options.open()
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
    report(f"The machine on {device.name}", [figures], figures)


@host.command(example="build/digits --count 4")
@click.argument("folder", type=MODEL)
@inputs_option
@count_option
@output_option
@prompts_option("What a text begins with.")
@text_options
@seed_option
@click.option(
    "--contents",
    type=FILE,
    help="Present content of external memory, such as image.bin of celosia compile.",
)
@click.pass_obj
def run(
    options: PortOptions,
    folder: str,
    prompts: tuple[str, ...],
    continuation: Continuation,
    seed: int,
    contents: Path | None,
    **values: Any,
) -> None:
    """Run the model in FOLDER (from celosia compile), and compare outputs with the golden machine.

    The golden machine is an exact model in software. A language model continues the text of
    --prompt. An encoder runs on the inputs of --inputs; without this option, a classifier of
    handwritten digits runs on test images that come with the package.
    """
    options.required_port()
    program = open_compiled(folder)
    text = program.code.reads_tokens
    refuse_other_kind(folder, text=text)
    if text:
        program.check_texts(len(prompts) or 1)
    held = b"" if contents is None else read_bytes(contents)
    device = options.open(program.config)
    device.contents = held
    clock = device.identity.clock
    check_room(program.code, device.identity.memory)
    if text:
        some = prompts or ("",)
        figures = continuation.run(program, some, device, seed=seed, quiet=as_json())
        mean = figures["mean_cycles_per_token"]
        rate = {"tokens_per_second": clock / mean if mean else None}
    else:
        figures = run_compiled(program, device, values, ONCHIP)
        rate = {"inferences_per_second": clock / figures["cycles_per_inference"]}
    device.close()
    result = {
        **figures,
        "clock_mhz": clock / 1e6,
        **rate,
        "repeated_requests": device.repeated,
    }
    (report_text if text else report_model)(f"{program.name} on {device.name}", result)


@host.command(example="--programs 1")
@click.option(
    "--programs",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Random programs to run for each unit.",
)
@seed_option
@click.pass_obj
def selftest(options: PortOptions, programs: int, seed: int) -> None:
    """Test the registers, the external memory and every unit of the machine on the board.

    For each unit, random programs run on the board and on the golden machine, and the results are
    compared.
    """
    device = options.open()
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
    report(f"selftest on {device.name}", rows, result)
