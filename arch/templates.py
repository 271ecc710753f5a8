"""Render texts from Jinja template files, which contain variables, loops and conditions."""

from pathlib import Path
from typing import Any

from celosia.arch.packages import Deferred

# Importing it takes a tenth of a short bench's start.
_jinja2: Any = Deferred("jinja2", "Templates need")


def rendered(*files: Path, **values: Any) -> str:
    """Concatenate template files, and return the text with its variables replaced by values.

    ``values`` are keyword arguments: each name is a variable of the templates. A line that begins
    with ``%`` is a Jinja statement.
    """
    environment = _jinja2.Environment(
        undefined=_jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%",
    )
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    made: str = environment.from_string(text).render(values)
    return made
