"""The entry point of the command ``celosia``, which handles interrupts from the first import on."""

import importlib

from celosia.arch.support.process import end_processes, starting
from celosia.cli.interrupts import answered


def main() -> None:
    """Run :func:`celosia.cli.main.main`, and handle interrupts while it is imported."""
    with answered(end_processes, starting):
        importlib.import_module("celosia.cli.main").main()
