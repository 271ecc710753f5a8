"""Fuzzing with damaged files: a command must accept the file, or refuse it in one sentence."""

import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from celosia.generators.campaign.case import Case
from celosia.tb.verify.fuzz.damage import damage
from celosia.tb.verify.fuzz.file_seeds import FORMATS, MODEL

SECONDS = 5
"""Most processor time of a command that refuses its input."""
_MOST_SECONDS = 20  # of processor time, for a command that takes its input
_WALL = 90.0  # seconds, for commands that wait without using the processor
_MEMORY = 1 << 32  # bytes that a command may take
_POLL = 0.005  # seconds
_SLOW = re.compile(r"^reading .*\n")
"""A line that a slow reader begins with."""
_OK, _REFUSED = (0, 1), 2


@dataclass(frozen=True)
class Ended:
    """Outcome of a command: exit code (None if killed), processor time (s), and printed texts."""

    code: int | None
    seconds: float
    """Processor time of the command (s)."""
    output: str
    errors: str
    opened: str
    """Path of a file outside the command's folder that the command has opened, or empty."""


def run(case: Case, main: Callable[[], None]) -> dict[str, Any]:
    """Damage a valid file, and run a command that reads it; return a dictionary of texts.

    ``main`` is the command's function. The case's field ``format`` is the file's format. Keys of
    the result:

    - ``mismatch``: a sentence about wrong behaviour of the command (:func:`judged`), or empty.
    - ``refusal``: the sentence with which the command refused the file, or empty.
    - ``file``: name of the file.
    - ``way``: kind of damage.
    """
    rng = case.rng()
    make = FORMATS[case.choice("format", FORMATS)]
    with tempfile.TemporaryDirectory(prefix="celosia.") as place:
        folder, outside = Path(place) / "in", Path(place) / "outside"
        for each in (folder, outside):
            each.mkdir()
        seed = make(folder, rng)
        name = seed.targets[int(rng.integers(len(seed.targets)))]
        # A file that the command line names may be a link; one of a model's folder may not.
        secret = (outside if name.startswith(MODEL) else folder) / f"secret_{Path(name).name}"
        secret.write_bytes((folder / name).read_bytes())
        way = damage(folder / name, secret, rng)
        ended = _forked(main, seed.words, folder, outside)
    return {
        "mismatch": judged(ended),
        "refusal": ended.errors.strip() if ended.code == _REFUSED else "",
        "file": name,
        "way": way,
    }


def judged(ended: Ended) -> str:
    """Return a sentence about a command's wrong behaviour with a damaged file, or an empty text.

    The command may end with exit code 0 or 1, or refuse the file in one sentence with exit code 2
    within ``SECONDS``. It must not open files outside the folder, or print control characters.
    """
    last = (ended.errors.strip().splitlines() or [""])[-1]
    if ended.opened:
        return f"A file outside the folder was opened: {ended.opened}"
    if ended.code is None:
        return f"The command did not end: killed after {ended.seconds:.1f} s of processor time"
    if "Traceback" in ended.errors or ended.code not in (*_OK, _REFUSED):
        lines = ended.errors.strip().splitlines()
        return f"Exit code {ended.code}: {' | '.join(lines[-5:])}"
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in ended.output + ended.errors):
        return f"Control characters are printed: {ended.output + ended.errors!r}"
    if ended.code != _REFUSED:
        return ""
    if ended.seconds > SECONDS:
        return f"Refused after {ended.seconds:.1f} s of processor time: {last}"
    said = _SLOW.sub("", ended.errors)
    if said.count("\n") != 1 or not said.startswith("celosia: ") or ended.output:
        return f"Refused with more than a sentence: {ended.errors!r}, {ended.output!r}"
    if "more memory than this computer" in last:
        return f"Memory was taken before a size was checked: {last}"
    return ""


def _forked(main: Callable[[], None], words: Sequence[str], folder: Path, outside: Path) -> Ended:
    """Run the command in a forked process in a folder."""
    names = [outside.parent / name for name in ("stdout", "stderr", "opened")]
    child = os.fork()
    if child == 0:
        _command(main, words, folder, outside, names)
    used, code = _wait(child)
    output, errors, opened = (
        path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        for path in names
    )
    return Ended(code, used, output, errors, opened.partition("\n")[0])


def _wait(child: int) -> tuple[float, int | None]:
    """Return the processor time of a process (s), and its exit code; None if it was killed."""
    end, killed = time.monotonic() + _WALL, False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            over = killed or code in (-signal.SIGXCPU, -signal.SIGKILL)
            return usage.ru_utime + usage.ru_stime, None if over else code
        if time.monotonic() > end:
            killed = True
            os.kill(child, signal.SIGKILL)
        time.sleep(_POLL)


def _command(
    main: Callable[[], None],
    words: Sequence[str],
    folder: Path,
    outside: Path,
    names: Sequence[Path],
) -> NoReturn:
    """Run the command in this process, without this process's open files and handlers."""
    code = 99
    try:
        for number, path in enumerate(names[:2], start=1):
            file = os.open(path, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2)
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS + 1))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        sys.addaudithook(_watcher(folder, outside, names[2]))
        sys.argv = ["celosia", *words]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


_FOREIGN = ("/etc/passwd", "/dev/zero")


def _watcher(folder: Path, outside: Path, log: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that writes the names of forbidden files that are opened to a log."""
    forbidden = (str(outside), *_FOREIGN)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        real = os.path.realpath(os.path.join(folder, os.fsdecode(arguments[0])))
        if real.startswith(forbidden):
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(file, f"{real}\n".encode(errors="replace"))
            os.close(file)

    return watch
