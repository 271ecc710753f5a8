"""Long steps of a command have a progress bar: little work is done beside one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from celosia.cli import output

SILENT = 50_000
"""Most calls of Python functions without a progress bar: those of about 0.1 s."""


@pytest.fixture
def silent(celosia, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs a command; its result is the longest stretch without a bar.

    A stretch is measured in calls of Python functions.
    """
    bars = 0

    @contextmanager
    def announced(_words: str, _seconds: float | None = None) -> Iterator[None]:
        nonlocal bars
        bars += 1
        yield
        bars -= 1

    def run(*words: str) -> int:
        stretch = longest = 0

        def note(_frame, event, _argument) -> None:
            nonlocal stretch, longest
            if event == "call":
                stretch = 0 if bars else stretch + 1
                longest = max(longest, stretch)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            code, _, err = celosia(*words)
        finally:
            sys.setprofile(before)
        assert code == 0, err
        return longest

    celosia("compile", "--help")
    celosia("run", "--help")
    monkeypatch.setattr(output, "announced", announced)
    return run


@pytest.mark.parametrize("case", ["text", "encoder"])
def test_reading_compiling_running_and_writing_are_shown(silent, tmp_path: Path, case) -> None:
    folder = str(tmp_path / "made")
    prompt = ("--prompt", "the fox")
    if case == "text":
        made = ("compile", "tales", "--config", "story", *prompt, "--add", "c", "--out", folder)
        assert silent(*made) < SILENT
        assert silent("run", folder, "--sim", "golden", *prompt, "--steps", "2") < SILENT
    else:
        assert silent("run", "digits", "--sim", "golden", "--count", "2") < SILENT
