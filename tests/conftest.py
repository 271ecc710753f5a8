"""Fixtures that several files of tests share, and the conditions under which tests are skipped."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from celosia.arch.support.cache import ROOT
from celosia.cli.main import main

SKIPS = {
    "PyTorch, the reference, is not installed": "`make test-long` installs it: 2 GB",
    "PyTorch, which exports it, is not installed": "`make test-long` installs it: 2 GB",
}
"""The reasons for which a test may be skipped in continuous integration, and why each is good."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with slow tests first: no process ends with a long test alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip a failure where the variable ``CI`` is set, but for the reasons above."""
    report = yield
    fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for files that are skipped as a whole."""
    report = yield
    fail_skip(report)
    return report


def fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn the report of a skip into that of a failure, where it is one."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if reason.removeprefix("Skipped: ") not in SKIPS:
        report.outcome = "failed"
        report.longrepr = f"Skipped, which tests/conftest.py does not allow here: {reason}"


@pytest.fixture
def celosia(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the command and returns exit code, output and errors.

    A slow computer prints no lines of progress.
    """
    monkeypatch.setattr("celosia.cli.output.LINE_SECONDS", 900.0)

    def call(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["celosia", *map(str, words)])
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with pytest.raises(SystemExit) as ended:
            main()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return ended.value.code, *capsys.readouterr()

    return call


@contextlib.contextmanager
def simulated(*words: str) -> Iterator[str]:
    """Run the command that simulates a board, and return its port."""
    command = [sys.executable, "-c", "from celosia.cli.main import main; main()", "board", *words]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", env=os.environ
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        process.stdout.close()


@pytest.fixture(scope="session")
def simulated_board() -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Return what runs ``celosia board`` with some options, and gives its serial port."""
    return simulated


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Return the serial port of a small board, which works as long as it is simulated."""
    with simulated("--board", "icebreaker", "--config", "tiny", "--memory", "32768") as name:
        yield name


@pytest.fixture(scope="session")
def line_of() -> Callable[[str], str]:
    """Return what reads a line that a board sends by itself, from its serial port."""

    def read(port: str, seconds: float = 120) -> str:
        file = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        end, line = time.monotonic() + seconds, b""
        while not line.endswith(b"\n") and time.monotonic() < end:
            try:
                line += os.read(file, 1)
            except BlockingIOError:
                time.sleep(0.02)
        os.close(file)
        return line.decode()

    return read


@pytest.fixture
def plain_simulation() -> Callable[..., str]:
    """Return a function that runs a folder's testbench as its first lines say."""

    def call(folder: Path, top: str = "celosia_accelerator") -> str:
        sources = [f"{top}_tb.v", f"{top}.v"]
        compiled = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", "test.vvp", *sources]
        done = subprocess.run(compiled, cwd=folder, capture_output=True, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, "")
        vvp = ["vvp", "-n", "test.vvp"]
        done = subprocess.run(vvp, cwd=folder, capture_output=True, encoding="utf-8")
        failed = done.stdout.splitlines()[-1].startswith("FAIL: ")
        assert (done.returncode, done.stderr) == (int(failed), "")
        return done.stdout

    return call
