"""The pages that carry examples, or are made from the code, say what the code says."""

import doctest
from pathlib import Path

import pytest

from tools.manual import manual

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["numerics.md", "formats.md", "decoder.md"])
def test_examples_run(page):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_instruction_set_manual_is_current():
    assert (DOCS / "isa.md").read_text(encoding="utf-8") == manual()
