"""Configurations by name or from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import InputError, close
from celosia.arch.files import read_toml
from celosia.arch.micro.config import MicroConfig
from celosia.arch.tables import own_table


def _preset(name: str, microcoded: bool = False, **values: Any) -> Config:
    return (MicroConfig if microcoded else Config)(name=name, **values)


PRESETS = {name: _preset(name, **values) for name, values in own_table("presets").items()}
"""Named configurations: from the smallest to the largest array, and for one model on the chip."""

WITH_ENGINES = tuple(
    name for name, config in PRESETS.items() if not isinstance(config, MicroConfig)
)
"""The presets of machines with engines: all but the microcoded one."""


def load(source: str, overrides: list[str] | None = None) -> Config:
    """Return the configuration named by a preset's name or a TOML file's path.

    A TOML file gives any fields by name and may start from a preset with ``preset = "NAME"``.
    Raises :class:`InputError` where the source is neither, or its content cannot work.
    """
    if source in PRESETS:
        config = PRESETS[source]
    elif Path(source).suffix == ".toml":
        config = _load_toml(Path(source))
    else:
        raise InputError(
            f"Unknown configuration {source!r};{close(source, PRESETS)} use a TOML file or one of "
            f"{', '.join(PRESETS)}"
        )
    return config.override(overrides or [])


def stated(source: str | None, overrides: Sequence[str]) -> set[str]:
    """Return the names of the fields to which a TOML file or overrides give a value themselves."""
    names = {assignment.partition("=")[0] for assignment in overrides}
    if source is not None and Path(source).suffix == ".toml":
        names |= read_toml(Path(source), "configuration").keys()
    return names


def _load_toml(path: Path) -> Config:
    values = read_toml(path, "configuration")
    preset = values.pop("preset", "small")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise InputError(f"Unknown preset {preset!r} in {path}; known are {', '.join(PRESETS)}")
    return PRESETS[preset].replace(**{"name": path.stem, **values})
