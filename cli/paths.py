"""Types of command-line arguments that name files and models, checked before any work."""

import os
from pathlib import Path
from typing import Any

import click

from celosia.arch.files import reading

_LONGEST_PART = 255  # bytes; of a name within a folder, on any usual file system
_LONGEST = 4095  # bytes; of a whole path


def check_name(text: str) -> str:
    """Return the end of an error message about the path ``text``, or "" if the path is valid.

    The returned text begins with a verb; the caller puts a subject, such as "The path", before it.
    """
    parts = [part.encode("utf-8", "surrogateescape") for part in text.split(os.sep)]
    if not text:
        return "must name a file or a folder, not be empty"
    if any(ord(character) < 32 for character in text):
        return f"must not have control characters, as {text[:80]!r} has"
    if max(map(len, parts)) > _LONGEST_PART or sum(map(len, parts)) + len(parts) > _LONGEST:
        return f"is longer than a file's name can be: {text[:80]!r}..."
    return ""


class _File(click.Path):
    """A path that a file system can have."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        wrong = check_name(str(value))
        if wrong:
            self.fail(f"The path {wrong}", param, ctx)
        return super().convert(value, param, ctx)


class _Model(click.ParamType):
    """The name of a model, or a path of one."""

    name = "model"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        wrong = check_name(str(value))
        if wrong:
            self.fail(f"The model's name {wrong}", param, ctx)
        return value


FILE = _File(path_type=Path)
"""The path of a file or a folder, which need not exist."""

MODEL = _Model()
"""Forms of a model's name."""


def check_ending(path: Path, endings: tuple[str, ...]) -> None:
    """Raise :class:`click.BadParameter` if a file's ending is not one of ``endings``."""
    if path.suffix not in endings:
        raise click.BadParameter(f"The name of {path} must end in {' or '.join(endings)}")


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes.

    Raises :class:`InputError` if the file cannot be read.
    """
    with reading(path):
        return path.read_bytes()
