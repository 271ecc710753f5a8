"""Make docs/archive/options.md: every option of earlier versions, and its spelling today.

python -m tools.options_page
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from celosia.arch.support.pages import table
from celosia.cli.former import TABLE, is_gone, keys_today, template_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "archive" / "options.md"
RECORD = ROOT / "tests" / "data" / "old_options.toml"
HEAD = """# Options of earlier versions

The table has the options whose spelling changed when the commands were put into a tree; all others
are the same. An old line is refused with the line to write today. Commands have old names, and
names in capitals stand for the values of the old options.

"""


def record() -> dict[str, dict[str, list[str]]]:
    """Return the old options of each command."""
    return tomllib.loads(RECORD.read_text(encoding="utf-8"))


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table: options and commands that have the same line of today."""
    commands: dict[tuple[str, str], list[str]] = {}
    for command, options in record().items():
        for option in [*options["values"], *options["flags"]]:
            template = template_of(command, option)
            if template is not None:
                commands.setdefault((option, today(template, option)), []).append(command)
    spellings: dict[tuple[str, str], list[str]] = {}
    for (option, shown), names in sorted(commands.items()):
        key = ", ".join(f"`{name}`" for name in names), shown
        spellings.setdefault(key, []).append(f"`{option}`")
    for (where, shown), spelled in spellings.items():
        yield ", ".join(spelled), where, shown


def today(template: str, option: str) -> str:
    """Return today's spelling of an old option, as Markdown, from its template."""
    if is_gone(template):
        return re.sub(r"give --quantize \S+", "give --quantize", template)
    other, _, words = template.rpartition("! ")
    if words.startswith("--quantize "):
        words = f"--quantize {keys_today(words.split()[1])}"
    value = option.strip("-").replace("-", "_").upper()
    shown = words.replace("{}", value).replace("{", "").replace("}", "")
    return f"`celosia {other} ... {shown}`" if other else f"`{shown}`"


def page() -> str:
    """Return the page."""
    added = TABLE["added"]
    names = (
        (f"`{old}`", f"`{' '.join([new, *added.get(old, '').split()])}`")
        for old, new in TABLE["names"].items()
    )
    keys = (
        (f"`{old}`", new if is_gone(new) else f"`{new}`".replace("{}", "VALUE"))
        for old, new in TABLE["keys"].items()
    )
    tables = [
        table(("option", "commands", "today"), rows()),
        table(("command", "today"), names),
        table(("key of `--quantize`", "today"), keys),
    ]
    return HEAD + "\n\n".join(tables) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
