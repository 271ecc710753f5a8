"""Fixtures that several files of tests share, and what may be skipped where."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from cli.main import main

SKIPS = {
    "PyTorch, the reference, is not installed": "`make test-long` installs it: 2 GB",
    "PyTorch, which exports it, is not installed": "`make test-long` installs it: 2 GB",
}
"""The reasons for which a test may be skipped in continuous integration, and why each is good."""


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
    """Return a function that runs the command and returns exit code, output and errors."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["celosia", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def plain_simulation() -> Callable[[Path], str]:
    """Return a function that runs a folder's testbench as its first lines say."""

    def call(folder: Path) -> str:
        sources = ["celosia_accelerator_tb.v", "celosia_accelerator.v"]
        compiled = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", "test.vvp", *sources]
        done = subprocess.run(compiled, cwd=folder, capture_output=True, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, "")
        vvp = ["vvp", "-n", "test.vvp"]
        done = subprocess.run(vvp, cwd=folder, capture_output=True, encoding="utf-8", check=True)
        return done.stdout

    return call
