"""Accelerator configurations, loaded by name or from a TOML file."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from celosia.arch.choices import EARLIER
from celosia.arch.config import Config
from celosia.arch.errors import InputError, close
from celosia.arch.files import read_toml
from celosia.arch.short_names import PATHS, RECORDS, by_short_names
from celosia.arch.tables import own_table

PRESETS = {name: Config.of(name=name, **values) for name, values in own_table("presets").items()}
"""Named configurations, from the smallest to the largest array; some are for one model."""

WITH_ENGINES = tuple(name for name, config in PRESETS.items() if config.micro is None)
"""Names of the presets with engines: all but the microcoded one."""

_GONE = ("clock_mhz",)
"""Names of removed fields that a file may still have; they have no effect."""


def load(source: str, overrides: list[str] | None = None) -> Config:
    """Return the configuration of a preset or of a TOML file, changed by ``overrides``.

    In a file, a table changes fields of a record, and ``RECORD = false`` removes the record's unit.
    The key ``preset`` names the base, by default ``small`` (``micro`` if there is a table
    ``micro``). ``overrides`` are texts such as ``rows=4``. Older fields are accepted and reported
    on standard error. Raises :class:`InputError` for an unknown source or invalid content.
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
    changed = config.override(overrides or [])
    for choice, earlier in _replaced(_names(overrides or [])).items():
        print(f"Write --set {choice}={changed.read(choice)} for {earlier}", file=sys.stderr)
    return changed


def _names(overrides: Sequence[str]) -> list[str]:
    return [each.partition("=")[0] for each in overrides]


def stated(source: str | None, overrides: Sequence[str]) -> set[str]:
    """Return the short names of the fields that a TOML file or ``overrides`` set, such as ``rows``.

    ``source`` is a TOML file's path, a preset's name, or None; a preset adds no names.
    ``overrides`` are texts such as ``rows=4``.
    """
    values: dict[str, Any] = dict.fromkeys(_names(overrides), True)
    names = set(values)
    if source is not None and Path(source).suffix == ".toml":
        values |= read_toml(Path(source), "configuration")
        values = {name: value for name, value in values.items() if name not in ("preset", *_GONE)}
    return names | by_short_names(values).keys()


def _load_toml(path: Path) -> Config:
    values = read_toml(path, "configuration")
    preset = values.pop("preset", "micro" if "micro" in values else "small")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise InputError(f"Unknown preset {preset!r} in {path}; known are {', '.join(PRESETS)}")
    gone = {name: values.pop(name) for name in _GONE if name in values}
    for name, value in gone.items():
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise InputError(f"{name} in {path} must be above 0, not {value!r}; it has no effect")
    config = PRESETS[preset].replace(**{"name": path.stem, **values})
    _advise(path, values, list(gone))
    for choice, earlier in _replaced(values).items():
        line = f"write {PATHS[choice]} = {config.read(choice)!r} for {earlier}"
        print(f"{path}: {line}", file=sys.stderr)
    return config


def _advise(path: Path, values: Mapping[str, Any], gone: Sequence[str]) -> None:
    """Print one line that says how to write a file's fields outside of tables in tables."""
    outside = [name for name in values if "." in PATHS.get(name, "")]
    outside = [name for name in outside if name not in RECORDS or not _is_record(values[name])]
    parts = [f"{PATHS[name]} for {name}" for name in outside]
    parts += [f"nothing for {name}, which has no effect" for name in gone]
    if parts:
        print(f"{path}: write {', '.join(parts)}", file=sys.stderr)


def _replaced(changes: Iterable[str]) -> dict[str, str]:
    """Return the earlier fields that are named, by the choices that replaced them."""
    names = by_short_names(changes if isinstance(changes, Mapping) else dict.fromkeys(changes))
    earlier = [name for name in names if name in EARLIER]
    return {
        choice: " and ".join(name for name in earlier if EARLIER[name] == choice)
        for choice in map(EARLIER.__getitem__, earlier)
    }


def _is_record(value: Any) -> bool:
    """Return whether a file's value is a record, or false for an absent unit."""
    return value is False or isinstance(value, Mapping)
