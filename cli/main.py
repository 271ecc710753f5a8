"""The command ``celosia``."""

import errno
import os
import sys
import traceback
import warnings
from typing import Any

import click

from celosia.arch.errors import InputError, RunError
from celosia.arch.packages import missing
from celosia.arch.support.cache import is_full
from celosia.arch.support.process import end_processes, starting
from celosia.cli.former import refuse_former
from celosia.cli.interrupts import handle_signals, interrupted
from celosia.cli.output import exit_code, json_option, progress, say
from celosia.cli.tree import Tree
from celosia.generators.lower.fitting import FitError, remedy

HEADINGS = {
    "Models": ("inspect", "run", "evaluate", "compile"),
    "Circuits": ("configs", "generate", "build", "flash", "board", "host"),
    "Figures": ("bench", "trace"),
    "Checks": ("test", "verify"),
    "First": ("demo",),
}
"""Every command; its module in this folder is loaded only if the command is used."""

COMMANDS = tuple(name for names in HEADINGS.values() for name in names)

_REFUSALS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS)
"""Numbers of the operating system's errors for a path that the user gave."""


@click.group(
    cls=Tree,
    headings=HEADINGS,
    functions={"compile": "compile_command"},
    result_callback=lambda *_, **__: exit_code(),
)
@click.version_option(package_name="celosia")
def celosia() -> None:
    """Generate open-source Transformer accelerators, run models on them, and check every tensor."""


celosia.params.append(json_option())


def main() -> None:
    """Run the command on the process's command line, and exit with the command's exit code.

    - 0: success.
    - 1: results differ from their reference, or a simulation, tool or board failed.
    - 2: the user's input is wrong.
    - 70: Celosia has a defect; the traceback is printed.
    - 130 and 143: SIGINT or SIGTERM has ended the command.
    """
    with handle_signals(end_processes, starting):
        # Units are made also where only their latency is asked for.
        warnings.filterwarnings("ignore", message=".* created but never used")
        # Numbers that are too large are refused in a sentence, which stands alone.
        warnings.filterwarnings("ignore", ".* encountered in", RuntimeWarning)
        sys.exit(_code())


def _code() -> int:
    """Run the command, report errors, and return the exit code."""
    try:
        code = _run()
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return 2
    except click.ClickException as error:
        return _refuse(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except InputError as error:
        return _refuse(str(error))
    except RunError as error:
        say(f"celosia: {error}", err=True)
        return 1
    except ModuleNotFoundError as error:
        return _refuse(str(missing(str(error.name).partition(".")[0], "This needs")))
    except MemoryError:
        return _refuse("this takes more memory than this computer has; give smaller sizes")
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.errno in _REFUSALS:
            path = f"{os.fsdecode(error.filename)}: {error.strerror}"
            return _refuse(f"Cannot use {path}; give another path, or ask its owner")
        if is_full(error):
            say("celosia: no space is left on a disk that was to be written", err=True)
            return 1
        if not interrupted():
            traceback.print_exc()
            say("celosia: this is a defect of celosia, not of what it was given", err=True)
        return 70
    return code if isinstance(code, int) else 0


def _run() -> Any:
    """Run the command; if a model does not fit, find changes that help."""
    refuse_former(celosia, sys.argv[1:])
    try:
        return celosia(prog_name="celosia", standalone_mode=False)
    except FitError as error:
        with progress("Looking for a configuration that has room") as update:
            clause = remedy(error, update)
        raise InputError(f"{error}; {clause}") from None


def _refuse(message: str) -> int:
    say(f"celosia: {' '.join(message.splitlines())}", err=True)
    return 2
