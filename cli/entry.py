"""The entry point of the command ``celosia``; it handles interrupts also during imports."""

import importlib

from celosia.arch.support.process import end_processes, starting
from celosia.cli.interrupts import answered


def main() -> None:
    """Import and run :func:`celosia.cli.main.main`.

    SIGINT and SIGTERM end the command in an orderly way, also during the import.
    """
    with answered(end_processes, starting):
        importlib.import_module("celosia.cli.main").main()
