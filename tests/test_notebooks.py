"""Notebooks and labs: their cells run, print the text's outputs, and answers pass their checks."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import jupytext
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.py"))
LABS = sorted((EXAMPLES / "labs").glob("*.py"))
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells(path: Path) -> list[Any]:
    return jupytext.read(path, fmt="py:percent").cells


def is_exercise(cell: Any) -> bool:
    return "exercise" in cell.metadata.get("tags", ())


def run(source: str, path: Path, names: dict[str, Any]) -> str:
    """Run a cell and return its output."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(source, str(path), "exec"), names)
    return output.getvalue()


def words(text: str) -> set[str]:
    return {" ".join(line.split()) for line in text.splitlines()}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_the_output_shown(path: Path, monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    output, names = "", {}
    for cell in cells(path):
        if cell.cell_type == "code":
            output += run(cell.source, path, names)
        for shown in SHOWN.findall(cell.source + "\n"):
            assert words(shown) <= words(output), output


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_the_answers_of_a_lab_pass_and_blanks_fail(path: Path, monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    answers = [cell.source for cell in cells(path.parent / "answers" / path.name)]
    code = [cell for cell in cells(path) if cell.cell_type == "code"]
    assert sum(map(is_exercise, code)) == len(answers) == 3
    names: dict[str, Any] = {}
    for cell, check in zip(code, [*code[1:], None], strict=True):
        if is_exercise(cell):
            blank = dict(names)
            run(cell.source, path, blank)
            with pytest.raises((AssertionError, TypeError, AttributeError)):
                run(check.source, path, blank)
            run(answers.pop(0), path, names)
        else:
            run(cell.source, path, names)


def test_every_notebook_and_lab_is_in_the_list() -> None:
    page = (EXAMPLES.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(\.\./examples/(\S+\.py)\)", page)
    assert listed == [str(path.relative_to(EXAMPLES)) for path in [*NOTEBOOKS, *LABS]]
    assert len(NOTEBOOKS) == len(LABS) == 4
