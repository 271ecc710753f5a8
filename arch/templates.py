"""Jinja templates in files: texts with values, loops and conditions."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined


def rendered(*files: Path, **values: Any) -> str:
    """Return the rendered text of template files, concatenated.

    A line that begins with ``%`` is a statement.
    """
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%",
    )
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return environment.from_string(text).render(values)
