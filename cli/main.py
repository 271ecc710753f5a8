"""The command ``celosia``."""

import importlib
import sys
import traceback
import warnings
from typing import Any

import click

from celosia.arch.errors import InputError, RunError
from celosia.arch.support.cache import is_full
from celosia.arch.support.process import end_processes, starting
from celosia.cli.interrupts import answered, interrupted
from celosia.cli.output import exit_code, progress, say
from celosia.generators.lower.fitting import FitError, remedy

COMMANDS = (
    *("configs", "generate", "compile", "inspect", "run", "trace", "board", "host", "bench"),
    *("accuracy", "perplexity", "demo", "text", "test", "prove", "faults", "fuzz", "mutate"),
    *("coverage", "replay", "build", "flash"),
)
"""Every command; its module in this folder is loaded only where the command is used."""

FUNCTIONS = {"compile": "compile_command"}
"""The function of a command in its module, where it is not the command's name."""


class Commands(click.Group):
    """Loads a command's module, and with it its extras, when the command is asked for."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return a command; raise :class:`InputError` where it needs what is not installed."""
        if name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"celosia.cli.{name}")
        except ModuleNotFoundError as error:
            raise InputError(
                f"Command {name} needs the package {error.name}; install "
                "celosia[simulate,digits,plot,boards]"
            ) from error
        command: click.Command = getattr(module, FUNCTIONS.get(name, name))
        return command


@click.group(cls=Commands, result_callback=lambda *_, **__: exit_code())
@click.version_option(package_name="celosia")
def celosia() -> None:
    """Open Transformer accelerators, generated from parameters and proven bit for bit."""


def main() -> None:
    """Run the command and exit with its code.

    0: done. 1: results that differ from their reference, or a simulation, tool or board that
    failed, whose log's end is shown. 2: wrong input, named in one sentence. 70: a defect of this
    project, with its traceback. 130: interrupted, 143: terminated; no program it started is left.
    """
    with answered(end_processes, starting):
        # Units are made also where only their latency is asked for.
        warnings.filterwarnings("ignore", message=".* created but never used")
        # Numbers that are too large are refused in a sentence, which stands alone.
        warnings.filterwarnings("ignore", ".* encountered in", RuntimeWarning)
        sys.exit(_code())


def _code() -> int:
    """Run the command, report what is wrong, and return the exit code."""
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
    except MemoryError:
        return _refuse("this takes more memory than this computer has; give smaller sizes")
    except Exception as error:
        if is_full(error):
            say("celosia: no space is left on a disk that was to be written", err=True)
            return 1
        if not interrupted():
            traceback.print_exc()
            say("celosia: this is a defect of celosia, not of what it was given", err=True)
        return 70
    return code if isinstance(code, int) else 0


def _run() -> Any:
    """Run the command; where a model does not fit, find out what would help."""
    try:
        return celosia(standalone_mode=False)
    except FitError as error:
        with progress("Looking for a configuration that has room") as update:
            clause = remedy(error, update)
        raise InputError(f"{error}; {clause}") from None


def _refuse(message: str) -> int:
    say(f"celosia: {' '.join(message.splitlines())}", err=True)
    return 2
