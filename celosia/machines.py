"""Configurations by keyword arguments."""

from pathlib import Path
from typing import Any

from celosia.arch.config import Config
from celosia.arch.presets import load


def config(source: str | Path = "small", **fields: Any) -> Config:
    """Return the configuration of a preset or a TOML file, with some fields changed.

    ``fields`` are short names such as ``rows=12``. Raises :class:`InputError` if the preset, file
    or field is unknown or a value is invalid.
    """
    return load(str(source)).replace(**fields)
