"""celosia build: a bitstream for a board, or a unit alone on its device."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from arch.config import Config
from arch.errors import InputError
from cli.board_options import board_options, checked_clock, flash_option, flashed
from cli.options import check_unit, json_option
from cli.output import check_folder, report, write_files
from cli.paths import FILE
from cli.rates import MODEL, RATES, TOKEN_RATES, inference_rates, token_rates
from fpga.boards import Board
from fpga.build import build_board, build_unit
from fpga.devices import RESOURCES
from generators.verilog.units import UNITS, make_unit


@click.command()
@board_options
@flash_option
@click.option(
    "--unit",
    metavar="UNIT",
    help=f"Build one unit alone, between registers, without a bitstream: {', '.join(UNITS)}.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="First seed."
)
@click.option(
    "--seeds",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many seeds to try; the best is kept.",
)
@click.option("--clock", "mhz", type=float, help="Frequency to build for, in MHz.")
@click.option("--out", "folder", type=FILE, required=True, help="Folder to write to.")
@json_option
def build(
    target: tuple[Board, Config],
    flash: str | None,
    unit: str | None,
    seed: int,
    count: int,
    mhz: float | None,
    folder: Path,
    as_json: bool,
) -> None:
    """Synthesize, place and route, and make the bitstream of a board.

    The folder gets the bitstream, the report, the floorplan, the Verilog, the constraints and the
    tools' logs.
    """
    board, config = target
    if flash is not None:
        if unit is not None:
            raise InputError("Option --flash is for a whole board, not for --unit")
        board, config = flashed(target, flash)
    if mhz is not None:
        checked_clock(mhz)
    made = None if unit is None else make_unit(unit, config)
    check_unit(unit or "", config)
    check_folder(folder)
    seeds = range(seed, seed + count)
    with tempfile.TemporaryDirectory(prefix="celosia.") as work:
        place = Path(work)
        if made is not None:
            done = build_unit(made, config, board, place, seeds, _tell, mhz=mhz)
            found = done.report
        else:
            done = build_board(config, board, place, seeds, _tell, mhz=mhz)
            _tell(f"Inferences of {MODEL}", 0, 1)
            found = done.report
            if not board.peak_bytes:
                found |= inference_rates(config, board.memory_bytes, found["clock_mhz"])
            found |= token_rates(config, board, found["clock_mhz"])
    write_files(folder, done.files | {"report.json": json.dumps(found, indent=2)})
    _show(found, as_json)


_BEGAN = time.monotonic()


def _tell(what: str, done: int, total: int) -> None:
    step = f"{what}: {done} of {total}" if total > 1 else what
    click.echo(f"{step} (after {time.monotonic() - _BEGAN:.0f} s)", err=True)


def _show(found: dict[str, Any], as_json: bool) -> None:
    rows = [
        {
            "board": found["board"],
            "configuration": found["config"],
            **{title: found[key] for key, title in RESOURCES.items()},
            "MHz": found["fmax_mhz"],
            "seed": found["seed"],
            **{key.replace("_", " "): found[key] for key in (*RATES, *TOKEN_RATES) if key in found},
        }
    ]
    report("Build", rows, as_json, found)
