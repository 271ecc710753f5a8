"""Render texts from Jinja template files, which contain variables, loops and conditions."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined


def rendered(*files: Path, **values: Any) -> str:
    """Concatenate template files, and return the text with its variables replaced by values.

    ``values`` are keyword arguments: each name is a variable of the templates. A line that begins
    with ``%`` is a Jinja statement.
    """
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%",
    )
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return environment.from_string(text).render(values)
