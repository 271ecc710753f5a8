"""Runs a board's loader: it loads a bitstream, or writes a bitstream or power-on image to flash."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from celosia.arch.errors import InputError, RunError
from celosia.fpga.boards import IMAGE_ADDR, Board, has_memory, with_sdram

LOADERS = {
    "openFPGALoader": "openfpgaloader",
    "fujprog": "fujprog",
    "ecpdap": "ecpdap",
    "dfu-util": "dfu-util",
    "icesprog": "icesprog",
    "iceprog": "fpga-icestorm",
}
"""Dictionary from the command of a loader to the operating system's package that has it."""


_FLASH_WORDS = {
    "openFPGALoader": "-f",
    "fujprog": "-j flash",
    "iceprog": "",
    "icesprog": "-w",
    "dfu-util": "",
}
"""Options with which a loader writes a bitstream to the flash; other loaders cannot do this."""

_IMAGE_WORDS = {
    "openFPGALoader": "-f --file-type raw -o {addr}",
    "fujprog": "-j flash -f {addr}",
    "iceprog": "-o {addr}",
    "icesprog": "-w -o {addr}",
}
"""Options with which a loader writes a file to a flash address; other loaders cannot do this."""


_INNER = "GW1NR-9C"  # a device that includes a flash


def find_bitstream(board: Board, folder: Path) -> Path:
    """Return the path of the bitstream that a build has made for a board.

    ``folder`` is the folder of the build. Raises :class:`InputError` if there is no bitstream, if
    it is for another board, or if the build's report is malformed.
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
    """Return the command, a list of words, that loads the bitstream ``file`` into a board.

    Raises :class:`InputError` if none of the board's loaders is on PATH.
    """
    names = [loader.split()[0] for loader in board.loaders]
    for name, loader in zip(names, board.loaders, strict=True):
        if shutil.which(name) is not None:
            return [str(file) if word == "{file}" else word for word in loader.split()]
    raise InputError(
        f"Board {board.name} needs {' or '.join(names)} on PATH; install the package "
        f"{' or '.join(LOADERS[name] for name in names)}"
    )


def flash_command(board: Board, file: Path) -> list[str]:
    """Return the command, a list of words, that writes a bitstream into a board's flash.

    Raises :class:`InputError` if no loader of the board that can write a bitstream is on PATH.
    """
    return _command(board, file, _FLASH_WORDS, "")


def image_command(board: Board, file: Path) -> list[str]:
    """Return the command, a list of words, that writes a power-on image into a board's flash.

    The image is the file ``file``, and goes to address ``IMAGE_ADDR``. Raises :class:`InputError`
    if no loader on PATH can write an image.
    """
    # The flash beside the device, not the one in it.
    return _command(board, file, _IMAGE_WORDS, "--external-flash" * (board.device.name == _INNER))


def _command(board: Board, file: Path, words: Mapping[str, str], more: str) -> list[str]:
    able = [loader for loader in board.loaders if loader.split()[0] in words]
    for loader in able:
        name = loader.split()[0]
        if shutil.which(name) is not None:
            added = f"{words[name]} {more}".format(addr=f"{IMAGE_ADDR:#x}").split()
            return [*loader.removesuffix("{file}").split(), *added, str(file)]
    names = " or ".join(loader.split()[0] for loader in able)
    needs = f"needs {names} on PATH" if names else "has no loader for addresses of its flash"
    raise InputError(
        f"Board {board.name} {needs}; with --image-only the image is written to a file, whose "
        f"place in the flash is {IMAGE_ADDR:#x}"
    )


def memory_of(board: Board, needed: int) -> int:
    """Return the size of a board's external memory (bytes) for ``needed`` bytes of data.

    The result is the size of the memory in block RAM. If the data are larger and the board has a
    supported memory chip, the result is the size of this chip. A result below ``needed`` means that
    the data do not fit the board.
    """
    if needed > board.memory_bytes and has_memory(board):
        return with_sdram(board).memory_bytes
    return board.memory_bytes


def check_image(board: Board, size: int) -> None:
    """Raise :class:`InputError` if a power-on image of ``size`` bytes is too large for a board.

    The image begins at ``board.flash.addr``, and must end in the flash that the board can read.
    """
    assert board.flash is not None
    room = board.flash.chip.reachable - board.flash.addr
    if size > room:
        raise InputError(
            f"An image of {size} bytes is too large for board {board.name}, whose flash has {room} "
            "for it"
        )


def flash(command: list[str], board: Board) -> None:
    """Run a loader's command; raise :class:`RunError` with the loader's output if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-10:])
        raise RunError(
            f"{command[0]} could not load board {board.name}; is it connected, and may this user "
            f"open it?\n{end}"
        )
