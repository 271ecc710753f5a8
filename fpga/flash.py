"""Loads a bitstream into a board through the board's usual loader."""

import json
import shutil
import subprocess
from pathlib import Path

from arch.errors import InputError, RunError
from fpga.boards import Board

LOADERS = {
    "openFPGALoader": "openfpgaloader",
    "fujprog": "fujprog",
    "ecpdap": "ecpdap",
    "dfu-util": "dfu-util",
    "icesprog": "icesprog",
    "iceprog": "fpga-icestorm",
}
"""The loaders and the packages, of an operating system, that bring them."""


def find_bitstream(board: Board, folder: Path) -> Path:
    """Return the bitstream that a build left in a folder.

    Raises :class:`InputError` where there is none, or where it is another board's.
    """
    file = folder / f"{board.name}.{board.device.family.bitstream}"
    report = folder / "report.json"
    remedy = f"make it with celosia build --board {board.name} --out {folder}"
    if report.is_file():
        try:
            built = json.loads(report.read_bytes())["board"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{report} is not the report of a build; {remedy}") from error
        if built != board.name:
            raise InputError(f"Folder {folder} holds a build for {built}, not for {board.name}")
    if not file.is_file():
        raise InputError(f"There is no {file}; {remedy}")
    return file


def load_command(board: Board, file: Path) -> list[str]:
    """Return the command that loads a bitstream into a board.

    Raises :class:`InputError` where none of the board's loaders is on PATH.
    """
    names = [loader.split()[0] for loader in board.loaders]
    for name, loader in zip(names, board.loaders, strict=True):
        if shutil.which(name) is not None:
            return [str(file) if word == "{file}" else word for word in loader.split()]
    raise InputError(
        f"Board {board.name} needs {' or '.join(names)} on PATH; install the package "
        f"{' or '.join(LOADERS[name] for name in names)}"
    )


def flash(command: list[str], board: Board) -> None:
    """Run a loader; raise :class:`RunError` with what it said where it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-10:])
        raise RunError(
            f"{command[0]} could not load board {board.name}; is it connected, and may this user "
            f"open it?\n{end}"
        )
