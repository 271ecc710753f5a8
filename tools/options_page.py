"""Make docs/options.md: every option of earlier versions, and its spelling today.

python -m tools.options_page
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from celosia.cli.former import TABLE, is_gone, spelling

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "options.md"
RECORD = ROOT / "tests" / "data" / "old_options.toml"
HEAD = """# Options of earlier versions

Each table has the options of a command whose spelling changed when the commands were put into a
tree. An old line is refused with the line to write today, and options without a row are the same.
Names in capitals stand for the values of the old options.
"""


def record() -> dict[str, dict[str, list[str]]]:
    """Return the old options of each command."""
    return tomllib.loads(RECORD.read_text(encoding="utf-8"))


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for command, options in record().items():
        name = TABLE["names"].get(command, command)
        changed = [
            f"| `{option}` | {today(template, option)} |"
            for option in [*options["values"], *options["flags"]]
            if (template := spelling(command, option)) is not None
        ]
        if name == command and not changed:
            continue
        yield f"## celosia {command}\n"
        if name != command:
            yield f"Today `celosia {name}`.\n"
        if changed:
            yield "| option | today |\n|---|---|"
            yield from changed
            yield ""


def today(template: str, option: str) -> str:
    """Return the template of an old option's spelling of today as Markdown."""
    if is_gone(template):
        return template
    other, _, words = template.rpartition("! ")
    value = option.strip("-").replace("-", "_").upper()
    shown = words.replace("{}", value).replace("{", "").replace("}", "")
    return f"`celosia {other} ... {shown}`" if other else f"`{shown}`"


def page() -> str:
    """Return the page."""
    return "\n".join(lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
