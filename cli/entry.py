"""The entry point of the command ``celosia``; it handles interrupts also during imports."""

import importlib
import signal


def main() -> None:
    """Import and run :func:`celosia.cli.main.main`.

    SIGINT and SIGTERM end the command without a traceback, also during the import.
    """
    # Python may discard the exception that its own handler raises during an import. So a signal
    # ends the process until the handlers of the command are set.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    interrupts = importlib.import_module("celosia.cli.interrupts")
    process = importlib.import_module("celosia.arch.support.process")
    with interrupts.handle_signals(process.end_processes, process.starting):
        importlib.import_module("celosia.cli.main").main()
