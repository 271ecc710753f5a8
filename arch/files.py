"""Files that a user names: read as a whole, or refused in one sentence."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arch.errors import InputError


@contextmanager
def reading(path: Path, what: str = "") -> Iterator[None]:
    """Tell that a file, of which ``what`` names the content, cannot be read in the block."""
    try:
        yield
    except OSError as error:
        name = f"{what} {path}".strip()
        raise InputError(f"Cannot read {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"File {path} is not UTF-8 text") from error


@contextmanager
def within(place: Path | str) -> Iterator[None]:
    """Add to what is wrong in the block in which file that is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error} in {place}") from error


def read_text(path: Path, what: str = "") -> str:
    """Return a file's text; raise :class:`InputError` where it cannot be read or is none."""
    with reading(path, what):
        return path.read_text(encoding="utf-8")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the values in a TOML file.

    Raises :class:`InputError` where it cannot be read, or is not TOML.
    """
    content = read_text(path, what)
    try:
        return tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{what.capitalize()} {path} is not TOML: {error}") from error
