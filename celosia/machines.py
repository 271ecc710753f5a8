"""Configurations by keywords."""

from pathlib import Path
from typing import Any

from celosia.arch.config import Config
from celosia.arch.presets import load


def config(source: str | Path = "small", **fields: Any) -> Config:
    """Return the configuration of a preset's name or a TOML file, with some fields changed.

    Raises :class:`InputError` if there is no such preset, file or field, or values cannot work.
    """
    return load(str(source)).replace(**fields)
