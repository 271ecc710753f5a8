"""Fixtures that several files of tests share."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.main import main


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
