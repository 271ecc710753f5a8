"""The pages that carry examples, or are made from the code, agree with the code."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tools.manual import manual

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ALL = sorted(DOCS.rglob("*.md"))
PAGES = [path for path in ALL if path.parent.name != "decisions"]
FILE = re.compile(
    r"`((?:arch|cli|docs|examples|fpga|generators|hdl|sim|tb|tests|tools)/[\w./-]+\.\w+)`"
)
NAME = re.compile(r"`(celosia(?:\.\w+)+)`")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute or a field of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if part in getattr(value, "__annotations__", ()):
                return True
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize("page", ["numerics.md", "formats.md", "compiler.md"])
def test_examples_run(page):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_instruction_set_manual_is_current():
    assert (DOCS / "isa.md").read_text(encoding="utf-8") == manual()


def test_files_and_names_on_pages_exist():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for file in FILE.findall(text):
            assert (ROOT / file).exists(), f"{page.name}: {file}"
        for name in set(NAME.findall(text)) - {"celosia.c", "celosia.h"}:
            assert exists(name), f"{page.name}: {name}"


def test_pages_have_at_most_2000_words():
    for page in PAGES:
        assert len(page.read_text(encoding="utf-8").split()) <= 2000, page.name


@pytest.mark.parametrize("page", ALL, ids=lambda path: path.stem)
def test_a_page_has_no_emphasis_inside_a_word_and_no_picture_without_a_description(page):
    html = MarkdownIt().enable("table").render(page.read_text(encoding="utf-8"))
    assert not re.findall(r"\w<(?:em|strong)>|</(?:em|strong)>\w", html), (
        "write a power as 2\\*\\*8"
    )
    assert 'alt=""' not in html
