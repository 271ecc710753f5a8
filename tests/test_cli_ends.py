"""Commands that are ended: no program that they started is left, and nothing half made."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from celosia.arch.errors import RunError
from celosia.arch.support import cache, process

SCRIPT = """
import sys
from pathlib import Path
from celosia.cli import main
from concurrent.futures import ThreadPoolExecutor
from celosia.arch.support.process import run_process
child = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
def work(number):
    log = Path(sys.argv[1]) / f"{number}.log"
    run_process(child, work="Work", cwd=log.parent, log=log)
def celosia(**_named):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(4)))
main.celosia = celosia
main.main()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_no_program_is_left(tmp_path: Path, number, code) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=cache.ROOT,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        processes = [path.read_text().split() for path in tmp_path.glob("*.log")]
        if sum(map(len, processes)) == 2:
            break
        time.sleep(0.1)
    children = [int(word) for words in processes for word in words]
    assert len(children) == 2
    parent.send_signal(number)
    assert parent.wait(30) == code
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert len(list(tmp_path.glob("*.log"))) == 2, "no program begins any more"


def test_a_second_signal_does_not_disturb_the_end() -> None:
    script = """
import os, signal
from celosia.cli import main
def end():
    print("ends", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
main.end_processes = end
main.refuse_former = lambda *_: None
main.celosia = lambda **_: os.kill(os.getpid(), signal.SIGTERM)
main.main()
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=cache.ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (143, "ends\n")


def test_nothing_begins_once_all_is_ended(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "_ending", True)
    with pytest.raises(RunError, match=r"^Work was interrupted$"):
        process.run_process(["true"], work="Work", cwd=tmp_path, log=tmp_path / "log")


def test_half_made_folders_are_deleted_at_the_next_start(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for left in (f"runs/bench.{ended.pid}.abc", "kind/key.abc"):
        (tmp_path / left).mkdir(parents=True)
    mine = cache.run_folder("bench")
    cache.cached("kind", "key", lambda _folder: None)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/")) == [
        "kind/key",
        str(mine.relative_to(tmp_path)),
    ]


FINALIZERS = """
import os, random, signal, sys, threading, time, weakref
from celosia.cli.interrupts import handle_signals
class Part:
    def __del__(self):
        sum(range(2000))
def work():
    print("begins", flush=True)
    while True:
        part = Part()
        callback = weakref.ref(part, lambda _: sum(range(2000)))
        del part
with handle_signals(lambda: None, lambda: False):
    work()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_interrupts_inside_finalizers_are_not_lost(number) -> None:
    """Python discards what is raised in them, which is nearly all that this program does."""
    rng = random.Random(1)
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", FINALIZERS],
            cwd=cache.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(rng.uniform(0, 0.02))
            program.send_signal(number)
            began = time.monotonic()
            _, errors = program.communicate(timeout=20)
        word = "terminated" if number == signal.SIGTERM else "interrupted"
        assert program.returncode == 128 + number
        assert errors.startswith(f"celosia: {word}\n")
        assert "Exception ignored" not in errors
        assert time.monotonic() - began < 3


STUBBORN = """
import sys, time
from celosia.cli import interrupts
interrupts._GRACE = float(sys.argv[1])
with interrupts.handle_signals(lambda: None, lambda: False):
    print("begins", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
"""


@pytest.mark.parametrize(("grace", "signals"), [(1, 1), (60, 2)], ids=["grace", "second"])
def test_a_program_that_discards_every_exception_is_ended(grace, signals) -> None:
    command = [sys.executable, "-c", STUBBORN, str(grace)]
    with subprocess.Popen(
        command, cwd=cache.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for _ in range(signals):
            program.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert program.communicate(timeout=10)[1] == "celosia: interrupted\n"
    assert program.returncode == 130


def handles_signals(program: subprocess.Popen) -> bool:
    """Return whether SIGTERM has a handler, which it has not while Python itself starts."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


def interrupt_compile(folder: Path, seconds: float, number: int) -> None:
    command = [sys.executable, "-c", "from celosia.cli.entry import main; main()", "compile"]
    command += ["digits-simplified", "--config", "tiny", "--count", "1", "--out", str(folder)]
    with subprocess.Popen(
        command, cwd=cache.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as program:
        while not handles_signals(program):
            time.sleep(0.01)
        time.sleep(seconds)
        program.send_signal(number)
        _, errors = program.communicate(timeout=20)
    assert program.returncode == 128 + number
    assert errors.strip() in ("celosia: interrupted", "celosia: terminated")
    assert not folder.exists() or not any(folder.glob(".celosia*"))


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_compile_is_interrupted(tmp_path: Path, seconds) -> None:
    interrupt_compile(tmp_path / "out", seconds, signal.SIGINT)


@pytest.mark.long
def test_compile_is_interrupted_at_any_time(tmp_path: Path) -> None:
    rng = random.Random(1)
    for turn in range(300):
        number = rng.choice([signal.SIGINT, signal.SIGTERM])
        interrupt_compile(tmp_path / str(turn), rng.uniform(0.0, 2.0), number)
