"""Runs a bench on many mutants: it forks a simulation, with one process for each mutant.

cocotb imports this module before the bench. The environment variable ``CELOSIA_MUTANTS`` is the
path of a folder with the numbers of mutants, ``mutants.json``. Results are in subfolders with these
numbers.
"""

import importlib
import json
import os
import signal
import time
from pathlib import Path

from celosia.tb.verify.mutation.netlist import write_number

TIMES = 2
"""Most processor time of a mutant, in multiples of the bench's time without a mutation; then it is
given up."""

_LEAST = 0.5  # seconds of processor time that each gets
_POLL = 0.02  # seconds


def ended(results: Path) -> str:
    """Return the text of cocotb's results file, or an empty text if the file is incomplete."""
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    return text if text.rstrip().endswith("</testsuites>") else ""


def _fork(folder: Path) -> None:
    numbers = json.loads((folder / "mutants.json").read_text(encoding="utf-8"))
    results = Path(os.environ["COCOTB_RESULTS_FILE"])
    # What the bench imports is then there in every process.
    for module in os.environ["COCOTB_TEST_MODULES"].split(","):
        if module != __name__:
            importlib.import_module(module)
    seconds = 0.0
    for number in (0, *numbers):
        place = Path.cwd() if number == 0 else folder / str(number)
        place.mkdir(exist_ok=True)
        own = results if number == 0 else place / "results.xml"
        child = os.fork()
        if not child:
            os.chdir(place)
            write_number(place, number)
            _run_alone(own, seconds, silent=number > 0)
            return
        used = _wait(child, own)
        if number == 0:
            if "<failure" in (text := ended(own)) or "<error" in text or not text:
                os._exit(1)
            seconds = _LEAST + TIMES * used
    os._exit(0)


def _run_alone(results: Path, seconds: float, *, silent: bool) -> None:
    """Let this process run the bench, with separate results and limited processor time."""
    os.environ["COCOTB_RESULTS_FILE"] = str(results)
    if not silent:
        return
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _wait(child: int, results: Path) -> float:
    """Wait for a process or its results, and return the processor time that it took (s)."""
    # Results are all that is wanted; a simulation may take its time to end.
    while True:
        done, _, usage = os.wait4(child, os.WNOHANG)
        if not done and ended(results):
            os.kill(child, signal.SIGKILL)
            done, _, usage = os.wait4(child, 0)
        if done:
            return usage.ru_utime + usage.ru_stime
        time.sleep(_POLL)


if "CELOSIA_MUTANTS" in os.environ:
    _fork(Path(os.environ["CELOSIA_MUTANTS"]))
