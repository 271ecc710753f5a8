"""README.md and the pages of docs/ agree with the code: tables, examples, commands, links."""

import doctest
import re
import shlex
from pathlib import Path

import click
import pytest

from celosia.arch.short_names import OPTIONAL, PATHS
from celosia.cli.main import COMMANDS, celosia
from tools.tables import PAGES as TABLES
from tools.tables import meanings, refresh

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
]
PLACES = [(page, name) for page, names in TABLES.items() for name in names]
TAIL = r"\\\n\s*"
"""The end of a line whose command continues in the next."""


def commands() -> list[str]:
    """Return every command on a page: lines of its examples, and those in running text."""
    lines: dict[str, None] = {}
    for page in PAGES[2:] + PAGES[:1]:
        text = re.sub(TAIL, " ", page.read_text(encoding="utf-8"))
        for line in re.findall(r"^(?:    )?celosia (.+)$", text, re.MULTILINE):
            lines[line.partition("  #")[0].rstrip(" &")] = None
        for line in re.findall(
            r"`celosia ((?:run|bench|verify|evaluate|generate) [^`]*-[^`]*)`", text
        ):
            lines[" ".join(line.split())] = None
    return [line for line in lines if "..." not in line and "--help" not in line]


SHOWN = commands()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", ["configuration.md"])
def test_the_examples_run(page: str) -> None:
    result = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", TABLES, ids=lambda path: path.name)
def test_the_tables_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert refresh(text, TABLES[page]) == text, "python -m tools.tables makes them anew"


def test_every_field_has_a_meaning() -> None:
    assert set(meanings()) == {*PATHS.values(), *OPTIONAL}
    assert all(meanings().values())


@pytest.mark.parametrize(("page", "name"), PLACES, ids=[name for _, name in PLACES])
def test_a_page_without_a_table_is_refused(page: Path, name: str) -> None:
    text = page.read_text(encoding="utf-8").replace(f"<!-- {name}: end -->", "")
    with pytest.raises(ValueError, match="The page must have one place between") as caught:
        refresh(text, TABLES[page])
    assert str(caught.value) == (
        f"The page must have one place between <!-- {name}: begin --> and <!-- {name}: end -->"
    )


def test_a_stale_table_is_made_anew() -> None:
    page = ROOT / "docs" / "configuration.md"
    text = page.read_text(encoding="utf-8")
    stale = text.replace("| `rows` | 8 |", "| `rows` | 9 |")
    assert stale != text
    assert refresh(stale, TABLES[page]) == text


def refusal(line: str) -> str:
    """Return the sentence by which click refuses a command line; "" if it takes the line."""
    # The root takes --json in any place.
    words = [word for word in shlex.split(line.replace("DIR", "build")) if word != "--json"]
    command: click.Command | None = celosia
    while isinstance(command, click.Group) and words:
        while words[0].startswith("--"):
            del words[:2]
        command = command.get_command(click.Context(command), words.pop(0))
    if command is None:
        return "no such command"
    try:
        if words:
            command.make_context(command.name, words)
    except click.ClickException as error:
        return error.format_message()
    return ""


def test_commands_take_the_options_shown() -> None:
    refused = {line: refusal(line) for line in SHOWN if refusal(line)}
    assert not refused
    assert "--rank" in refusal("generate --rank 3")
    assert refusal("generates")


def test_every_command_is_listed() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert len(SHOWN) > 50
    assert set(COMMANDS) <= set(re.findall(r"^\| `celosia (\w+)", page, re.MULTILINE))


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        target
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([\w-]+)(?=[`\n])", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_to_files() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
        if not link.startswith("https://") and not (page.parent / link).exists()
    ]
    assert not broken, "\n".join(broken)
