"""The entry point of the command ``celosia``; it handles interrupts also during imports."""

import importlib

from celosia.arch.support.process import end_processes, starting
from celosia.cli.interrupts import answered


def main() -> None:
    """Import and run :func:`celosia.cli.main.main`, and handle interrupts from the import on."""
    with answered(end_processes, starting):
        importlib.import_module("celosia.cli.main").main()
