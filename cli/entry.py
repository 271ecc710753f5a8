"""The entry of the command ``celosia``: interrupts are answered from the first import on."""

import importlib

from cli.interrupts import answered
from generators.process import end_processes, starting


def main() -> None:
    """Run :func:`cli.main.main`."""
    with answered(end_processes, starting):
        importlib.import_module("cli.main").main()
