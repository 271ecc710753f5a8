"""Subprocesses that write to a log file, and are killed when this process ends."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from celosia.arch.errors import RunError

_running: set[subprocess.Popen[bytes]] = set()
_ending = False
_starting = False  # in the main thread, where an exception would lose the program's number


def starting() -> bool:
    """Return whether the main thread is starting a subprocess at this moment.

    A signal handler must then not raise an exception; it can call :func:`end_processes` instead.
    """
    return _starting


def end_processes() -> None:
    """Kill all subprocesses; each later call of :func:`run_process` raises :class:`RunError`."""
    global _ending
    _ending = True
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_process(
    command: Sequence[str | Path],
    *,
    work: str,
    cwd: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> None:
    """Run a command in the folder ``cwd``; write its output and error messages to file ``log``.

    ``work`` is a noun for messages, such as "Build for icarus". ``env`` replaces all environment
    variables. ``timeout`` is in seconds. Raises :class:`RunError` with the log's last lines if the
    command fails or exceeds the timeout; its processes are then killed.
    """
    global _starting
    if _ending:
        raise RunError(f"{work} was interrupted")
    main = threading.current_thread() is threading.main_thread()
    with log.open("w", encoding="utf-8") as stream:
        _starting = _starting or main
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            _running.add(process)
        finally:
            _starting = _starting and not main
        try:
            if _ending:
                raise KeyboardInterrupt if main else RunError(f"{work} was interrupted")
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RunError(f"{work} took longer than {timeout} s:\n{tail(log)}") from None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()
            _running.discard(process)
    if code != 0:
        raise RunError(f"{work} failed with exit code {code}:\n{tail(log)}")


def tail(log: Path) -> str:
    """Return the last 60 lines of a log file as text."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-60:])
