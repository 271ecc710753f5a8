"""celosia generate: Verilog from parameters."""

from pathlib import Path

import click

from cli.options import config_options, resolve, seed_option
from cli.output import check_folder, write_files
from generators.verilog.describe import summary
from generators.verilog.fusesoc import core_file
from generators.verilog.manifest import manifest
from generators.verilog.units import BUSES, CONTROL_BUSES, UNITS, make_accelerator, make_unit
from generators.verilog.verilog import to_verilog
from tb.plain_testbench import testbench


@click.command()
@config_options("small")
@click.option(
    "--unit",
    default="accelerator",
    show_default=True,
    metavar="UNIT",
    help=f"One of {', '.join(UNITS)}.",
)
@click.option(
    "--bus",
    default="native",
    show_default=True,
    metavar="BUS",
    help=f"What the accelerator's external memory is behind: {', '.join(BUSES)}.",
)
@click.option(
    "--bus-addr-width",
    "addr_width",
    type=int,
    default=32,
    show_default=True,
    help="Width of a byte address of the bus, in bits.",
)
@click.option(
    "--bus-base",
    "base",
    default="0",
    show_default=True,
    metavar="ADDRESS",
    help="Bus address of the first byte of external memory, as 0x80000000.",
)
@click.option(
    "--control",
    default="native",
    show_default=True,
    metavar="BUS",
    help=f"What the accelerator's host port is behind: {', '.join(CONTROL_BUSES)}.",
)
@click.option(
    "--testbench",
    "with_testbench",
    is_flag=True,
    help="Add a testbench of the accelerator in plain Verilog, with a program and its results.",
)
@click.option("--fusesoc", "with_core", is_flag=True, help="Add a core file for FuseSoC.")
@seed_option
@click.option(
    "--out", "folder", type=click.Path(path_type=Path), required=True, help="Folder to write to."
)
def generate(
    source: str,
    overrides: tuple[str, ...],
    unit: str,
    bus: str,
    addr_width: int,
    base: str,
    control: str,
    with_testbench: bool,
    with_core: bool,
    seed: int,
    folder: Path,
) -> None:
    """Write a unit's Verilog, its configuration, and a JSON description.

    The description holds the ports and, for the accelerator, registers, instruction set and buses.
    With --seed the testbench has another random program.
    """
    config = resolve(source, overrides)
    check_folder(folder)
    if unit == "accelerator":
        component = make_accelerator(config, bus, addr_width, _number(base), control)
    elif bus != "native":
        raise ValueError(f"Only the accelerator can have its memory behind a bus, not {unit}")
    elif control != "native":
        raise ValueError(f"Only the accelerator can have its host port behind a bus, not {unit}")
    else:
        component = make_unit(unit, config)
    name = f"celosia_{unit}"
    files = {
        f"{name}.v": to_verilog(component, name),
        "config.toml": config.to_toml(),
        f"{name}.json": manifest(component, name, config),
    }
    added = {}
    if with_testbench:
        if unit != "accelerator":
            raise ValueError(f"Only the accelerator has a testbench, not {unit}")
        place = {"bus": bus, "addr_width": addr_width, "base": _number(base)}
        added = testbench(config, control, seed, **place)
    files |= added
    if with_core:
        files[f"{name}.core"] = core_file(config, name, summary(type(component)), list(added))
    write_files(folder, files)
    for file, content in files.items():
        click.echo(f"{folder / file}: {len(content.splitlines()):,} lines")


def _number(text: str) -> int:
    """Return an integer as programs write it, in any base."""
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"Base of external memory must be an integer, not {text!r}") from None
