"""The entry of the command ``celosia``: interrupts are answered from the first import on."""

import importlib

from celosia.arch.support.process import end_processes, starting
from celosia.cli.interrupts import answered


def main() -> None:
    """Run :func:`celosia.cli.main.main`."""
    with answered(end_processes, starting):
        importlib.import_module("celosia.cli.main").main()
