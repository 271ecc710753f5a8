"""celosia build: make a bitstream for a board, or place and route a single unit of the machine."""

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.board_options import board_options, flash_option, flashed
from celosia.cli.options import check_unit
from celosia.cli.output import report
from celosia.cli.paths import FILE
from celosia.cli.rates import MODEL, SPEEDS, rates, renewed
from celosia.cli.tree import Command
from celosia.fpga.boards import Board
from celosia.fpga.build import Build, Task
from celosia.fpga.devices import RESOURCES
from celosia.fpga.pll import checked_clock
from celosia.generators.verilog.units import UNITS, make_unit

REPORT = "report.json"
"""Name of the report's file."""


@click.command(cls=Command, example="--board ulx3s_85f --out build/ulx3s")
@board_options
@flash_option
@click.option(
    "--unit",
    metavar="UNIT",
    help=f"Build one unit alone, between registers, without a bitstream: {', '.join(UNITS)}.",
)
@click.option(
    "--seed",
    "seeds",
    callback=lambda _context, _parameter, text: read_seeds(text),
    default="1",
    show_default=True,
    metavar="SEED[-LAST]",
    help="Seed of place-and-route, or several as 1-3; the best is kept. Each takes minutes.",
)
@click.option("--clock", "mhz", type=float, help="Frequency to build for, in MHz.")
@click.option("--out", "folder", type=FILE, required=True, help="Folder to write to.")
def build(
    target: tuple[Board, Config],
    flash: str | None,
    unit: str | None,
    seeds: range,
    mhz: float | None,
    folder: Path,
) -> None:
    """Synthesize, place and route a board's machine, and make its bitstream.

    A build takes 5 to 20 minutes. It writes the bitstream, the report, the floorplan, the Verilog,
    the constraints and the tools' logs to the folder of --out. Then the command simulates the
    board, and adds the cycles per inference and per token to the report. If the folder already has
    the files of the same design, nothing is built, and the command only updates the report's
    cycles. With --unit it builds one unit without the rest of the machine, and makes no bitstream.
    """
    board, config = target
    if flash is not None:
        if unit is not None:
            raise InputError("Option --flash is for a whole board, not for --unit")
        board, config = flashed(target, flash)
    if mhz is not None:
        checked_clock(mhz)
    made = None if unit is None else make_unit(unit, config)
    task = Task(config=config, board=board, seeds=seeds, mhz=mhz, unit=made)
    check_unit(unit or "", config)
    check_folder(folder)
    done = _kept(task, folder)
    if done is None:
        with tempfile.TemporaryDirectory(prefix="celosia.") as work:
            done = task.build(Path(work), _tell)
    build_report = done.report
    if made is None:
        _tell(f"Inferences of {MODEL}", 0, 1)
        build_report = renewed(build_report, rates(config, board, build_report["clock_mhz"]))
    write_files(folder, done.files | {REPORT: json.dumps(build_report, indent=2)})
    _show(build_report)


def read_seeds(text: str) -> range:
    """Return the seeds in a text: one seed such as ``3``, or a range such as ``1-3``.

    The result is a range of integers. Raises :class:`InputError` if the text has another form, or
    the range is empty.
    """
    ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    seeds = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else range(0)
    if not seeds:
        raise InputError(
            f"Option --seed takes a number, or the first and last as 1-3, not {text!r}"
        )
    return seeds


def _kept(task: Task, folder: Path) -> Build | None:
    """Return a folder's results of the design that is to be built, or None if it has none."""
    bitstream = f"{task.board.name}.{task.board.device.family.bitstream}"
    names = (REPORT, bitstream) if task.unit is None else (REPORT,)
    if not all((folder / name).is_file() for name in names):
        return None
    try:
        build_report = json.loads((folder / REPORT).read_bytes())
    except ValueError:
        return None
    same = isinstance(build_report, dict) and build_report.get("design") == task.design()
    return Build(build_report, {}) if same else None


_BEGAN = time.monotonic()


def _tell(stage: str, done: int, total: int) -> None:
    step = f"{stage}: {done} of {total}" if total > 1 else stage
    click.echo(f"{step} (after {time.monotonic() - _BEGAN:.0f} s)", err=True)


def _show(build_report: dict[str, Any]) -> None:
    rows = [
        {
            "board": build_report["board"],
            "configuration": build_report["config"],
            **{title: build_report[key] for key, title in RESOURCES.items()},
            "MHz": build_report["fmax_mhz"],
            "seed": build_report["seed"],
            **{key.replace("_", " "): build_report[key] for key in SPEEDS if key in build_report},
        }
    ]
    report("Build", rows, build_report)
