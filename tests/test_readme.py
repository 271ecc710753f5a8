"""README.md says what is there: its tables, its example, its commands, its links."""

import doctest
import re
import shlex
from pathlib import Path

import click
import pytest

from arch.config import Config
from arch.readme import README, meanings, refresh
from cli.main import COMMANDS, celosia

ROOT = Path(__file__).parents[1]
PAGE = README.read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = re.findall(r"^celosia (.+)$", PAGE, re.MULTILINE)
MEASURING = re.findall(r"`celosia ((?:run|bench|accuracy|generate) [^`]*-[^`]*)(?<!--help)`", PAGE)


def test_the_example_runs():
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_tables_are_current():
    assert refresh(PAGE) == PAGE, "python -m arch.readme makes them anew"


def test_every_field_has_a_meaning():
    assert list(meanings()) == list(Config().fields())
    assert all(meanings().values())


@pytest.mark.parametrize("name", ["parameters", "presets", "registers"])
def test_a_page_without_a_table_is_refused(name):
    page = PAGE.replace(f"<!-- {name}: end -->", "")
    with pytest.raises(ValueError, match="The page must have one place between") as caught:
        refresh(page)
    assert str(caught.value) == (
        f"The page must have one place between <!-- {name}: begin --> and <!-- {name}: end -->"
    )


def test_a_stale_table_is_made_anew():
    stale = PAGE.replace("| `rows` | 8 |", "| `rows` | 9 |")
    assert stale != PAGE
    assert refresh(stale) == PAGE


@pytest.mark.parametrize("line", SHOWN + MEASURING)
def test_commands_take_the_options_shown(line):
    words = shlex.split(line.replace("DIR", "build"))
    command: click.Command | None = celosia
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    command.make_context(command.name, words)


def test_every_command_is_listed():
    assert SHOWN
    assert MEASURING
    assert set(COMMANDS) <= set(re.findall(r"^\| `celosia (\w+)", PAGE, re.MULTILINE))


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake (\w+)(?=[`\n])", PAGE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link
