"""celosia generate: write the Verilog of an accelerator, or of one unit, for a configuration."""

from pathlib import Path

import click
from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.errors import InputError, check_known
from celosia.arch.presets import stated
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.bus_options import (
    add_option,
    attached,
    attachment_options,
    check_modules,
    top_option,
)
from celosia.cli.options import (
    check_unit,
    override_option,
    resolve,
    seed_option,
    source_option,
)
from celosia.cli.output import say
from celosia.cli.paths import FILE
from celosia.cli.tree import Command
from celosia.fpga.part import PARTS, get_part
from celosia.fpga.part_fit import family_needs, fit_part, with_registers
from celosia.fpga.synthesis import EXPORTED, exported
from celosia.generators.verilog.describe import summary
from celosia.generators.verilog.fusesoc import core_file
from celosia.generators.verilog.manifest import manifest
from celosia.generators.verilog.units import UNITS, make_unit
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.models.plain_testbench import Attachment, testbench


@click.command(cls=Command, example="--config small --out build/verilog", reports=False)
@source_option("small")
@override_option
@click.option(
    "--unit",
    default="accelerator",
    show_default=True,
    metavar="UNIT",
    help=f"One of {', '.join(UNITS)}.",
)
@attachment_options
@top_option
@click.option(
    "--prefix",
    metavar="NAME",
    help="Begins the names of all modules below the top.  [default: the top's name]",
)
@add_option(
    testbench="of the accelerator in plain Verilog, with a program and its results",
    fusesoc="a core file",
)
@click.option(
    "--device",
    "family",
    metavar="FAMILY[:PART]",
    help=f"Put in a family's multipliers and memories: {', '.join(EXPORTED)}. With a part the "
    f"design is brought within it, or refused (some minutes): {', '.join(PARTS)}.",
)
@seed_option
@click.option("--out", "folder", type=FILE, required=True, help="Folder to write to.")
def generate(
    source: str,
    overrides: tuple[str, ...],
    unit: str,
    attachment: Attachment,
    top: str | None,
    prefix: str | None,
    added: set[str],
    family: str | None,
    seed: int,
    folder: Path,
) -> None:
    """Write a unit's Verilog, its configuration, and a JSON description.

    The description holds the ports and, for the accelerator, registers, instruction set and buses.
    With --add testbench, --seed selects the random program that the testbench runs.
    """
    check_modules(None, top, prefix)
    config = resolve(source, overrides)
    part = None
    if family is not None and ":" in family:
        part = get_part(family)
        family = part.family.name
        if "registered" not in stated(source, overrides):
            config = with_registers(config, part)
    elif family is not None:
        check_known("device", family, (*EXPORTED, *PARTS))
    check_folder(folder)
    if unit != "accelerator" and attachment.bus != "native":
        raise InputError(f"Only the accelerator can have its memory behind a bus, not {unit}")
    if unit != "accelerator" and attachment.control != "native":
        raise InputError(f"Only the accelerator can have its host port behind a bus, not {unit}")
    name = top or f"celosia_{unit}"

    def made(config: Config) -> Component:
        return attached(config, attachment) if unit == "accelerator" else make_unit(unit, config)

    def plain(config: Config) -> str:
        return kept_verilog(made(config), name, prefix)

    component = made(config)
    check_unit(unit, config)
    check_modules(component, top, prefix)
    if part is not None:
        fit = fit_part(config, plain, name, part, _tell)
        verilog, sentence = fit.verilog, fit.sentence(part)
        sentence += f"; registered={str(config.control.registered).lower()}"
    else:
        verilog = kept_verilog(component, name, prefix)
        sentence = family_needs(verilog)
        verilog = exported(verilog, family) if family else verilog
    files = {
        f"{name}.v": verilog,
        "config.toml": config.to_toml(),
        f"{name}.json": manifest(component, name, config),
    }
    bench = {}
    if "testbench" in added:
        if unit != "accelerator":
            raise InputError(f"Only the accelerator has a testbench, not {unit}")
        bench = testbench(config, seed, attachment, name)
    files |= bench
    if "fusesoc" in added:
        files[f"{name}.core"] = core_file(config, name, summary(type(component)), list(bench))
    write_files(folder, files)
    for file, content in files.items():
        say(f"{folder / file}: {len(content.splitlines()):,} lines")
    say(sentence)


def _tell(step: str) -> None:
    say(step, err=True)
