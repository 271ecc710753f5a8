"""The pages that carry examples, or are made from the code, say what the code says."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

from tools.manual import manual

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["numerics.md", "decoder.md"])
def test_examples_run(page):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_instruction_set_manual_is_current():
    assert (DOCS / "isa.md").read_text(encoding="utf-8") == manual()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    words = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=DOCS.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("index", "commands", "api/hdl", "units/control"):
        assert (tmp_path / f"{page}.html").is_file()
