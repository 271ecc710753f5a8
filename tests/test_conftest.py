"""Tests that are skipped: a failure in continuous integration, unless there is a reason."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_collection_modifyitems

LISTED = "PyTorch, the reference, is not installed"

CASES = """
import pytest
@pytest.mark.skip(reason={first!r})
def test_first(): pass
@pytest.mark.skip(reason={second!r})
def test_second(): pass
"""
WHOLE = "import pytest\npytest.importorskip('no_such_module', reason='no such module')\n"


@pytest.mark.parametrize(("variable", "failed"), [("true", 2), ("", 0)])
def test_a_skip_fails_unless_it_is_listed(tmp_path: Path, variable: str, failed: int) -> None:
    folder = Path(__file__).parent
    (tmp_path / "conftest.py").write_text((folder / "conftest.py").read_text("utf-8"), "utf-8")
    text = CASES.format(first=LISTED, second="no tool")
    (tmp_path / "test_cases.py").write_text(text, "utf-8")
    (tmp_path / "test_whole.py").write_text(WHOLE, "utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--continue-on-collection-errors", "--import-mode=importlib"),
            *("--rootdir", tmp_path, tmp_path),
        ],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=os.environ | {"CI": variable, "PYTHONPATH": str(folder.parent)},
    )
    assert (done.returncode != 0) == (failed > 0), done.stdout
    told = done.stdout.count("which tests/conftest.py does not allow here")
    assert (told >= failed) if failed else (told == 0), done.stdout


def test_files_with_slow_tests_run_first() -> None:
    items = [
        SimpleNamespace(path=path, name=name, get_closest_marker={"slow": slow}.get)
        for path, name, slow in (("a", 1, None), ("b", 2, None), ("b", 3, pytest.mark.slow))
    ]
    pytest_collection_modifyitems(items)
    assert [item.name for item in items] == [2, 3, 1]
