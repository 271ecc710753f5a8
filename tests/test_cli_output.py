"""Tables that fit the screen."""

import time

import pytest

from celosia.cli.output import announced, progress, report, text

ROWS = [{"model": name, "cycles_per_inference": 7947, "accuracy": 0.99} for name in ("one", "two")]


@pytest.mark.parametrize("width", [80, 41])
def test_table_is_turned_where_its_lines_are_too_long(monkeypatch, capsys, width) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    report("Results", ROWS, {})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for name in ROWS[0]:
        assert sum(name in line for line in lines) == 1
    assert sum("7,947" in line for line in lines) == (2 if width == 80 else 1)


def test_progress_is_told_without_a_terminal(monkeypatch, capsys) -> None:
    with progress("Short work") as update:
        update(1, 3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("celosia.cli.output.LINE_SECONDS", 0.0)
    with progress("Long work") as update:
        update(1, 3)
        update(2, 3)
    first, second = "Long work: 1 of 3 after 0 s", "Long work: 2 of 3 after 0 s, 0 s left"
    assert capsys.readouterr() == ("", f"{first}\n{second}\n")
    monkeypatch.setattr("celosia.cli.output._ANNOUNCED", 0.01)
    with progress("Long work"):
        time.sleep(0.2)
    assert capsys.readouterr().err == "Long work: begun\n"


def test_what_takes_long_is_announced_and_what_is_quick_is_not(capsys, monkeypatch) -> None:
    monkeypatch.setattr("celosia.cli.output._ANNOUNCED", 0.01)
    for words, seconds, errors in (("reading x", 0.2, "reading x\n"), ("", 0.2, "")):
        with announced(words):
            time.sleep(seconds)
        assert capsys.readouterr().err == errors
    monkeypatch.setattr("celosia.cli.output._ANNOUNCED", 60)
    with announced("reading x"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1"), (0.99996, "0.99996"), (0.9996, "0.9996"), (-1.0, "-1")]
)
def test_a_share_below_one_is_not_shown_as_one(value: float, shown: str) -> None:
    assert text(value) == shown
