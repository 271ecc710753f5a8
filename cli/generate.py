"""celosia generate: Verilog from parameters."""

from pathlib import Path

import click

from cli.options import config_options, resolve
from cli.output import check_folder, write_files
from generators.manifest import manifest
from generators.units import UNITS, make_unit
from generators.verilog import to_verilog


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
    "--out", "folder", type=click.Path(path_type=Path), required=True, help="Folder to write to."
)
def generate(source: str, overrides: tuple[str, ...], unit: str, folder: Path) -> None:
    """Write a unit's Verilog, its configuration, and a JSON description.

    The description holds the ports and, for the accelerator, registers and instruction set.
    """
    config = resolve(source, overrides)
    check_folder(folder)
    component = make_unit(unit, config)
    name = f"celosia_{unit}"
    files = {
        f"{name}.v": to_verilog(component, name),
        "config.toml": config.to_toml(),
        f"{name}.json": manifest(component, name, config),
    }
    write_files(folder, files)
    for file, content in files.items():
        click.echo(f"{folder / file}: {len(content.splitlines()):,} lines")
