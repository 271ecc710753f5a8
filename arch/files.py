"""Read whole files named by the user; each error message is one sentence."""

import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError


@contextmanager
def reading(path: Path, label: str = "") -> Iterator[None]:
    """Turn file errors in a ``with`` block into an :class:`InputError` that names ``path``.

    The errors are OSError, and text that is not UTF-8. The block does not run if ``path`` is a
    device, pipe or socket. ``label`` is a noun for the message, such as ``checkpoint``.
    """
    name = f"{label} {path}".strip()
    try:
        kind = _special(path)
        if kind:
            raise InputError(f"Cannot read {name}: it is {kind}; save its content to a file")
        yield
    except OSError as error:
        raise InputError(f"Cannot read {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"File {path} is not UTF-8 text") from error


_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _special(path: Path) -> str:
    """Return the kind of a path that is neither a file nor a folder; an empty text of these."""
    try:
        return _SPECIAL.get(stat.S_IFMT(path.stat().st_mode), "")
    except (OSError, ValueError):
        return ""  # it does not exist, which reading it says in words


def inside(folder: Path, name: object, place: Path) -> Path:
    """Return the path of the file ``name`` in ``folder``.

    ``place`` is the path of the file in which ``name`` is written, for error messages. Raises
    :class:`InputError` if ``name`` is not a printable string, or if it leads out of the folder.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InputError(f"File {place} must name files of its folder, not {name!r}")
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not _is_within(path, folder):
        raise InputError(
            f"File {place} names {name!r}, which is not in its folder; copy it into {folder}"
        )
    return path


def check_links(folder: Path) -> None:
    """Raise :class:`InputError` if a folder has devices, pipes, sockets, or links out of it.

    Only entries of ``folder`` and of its direct subfolders are checked. Names with a period first
    are left out. Links of a Hugging Face snapshot to its cache's ``blobs`` are accepted.
    """
    if not folder.is_dir():
        return
    with reading(folder, "folder"):
        for entry in _entries(folder):
            kind = _special(Path(entry.path))
            if kind:
                raise InputError(f"Folder {folder} holds {entry.name!r}, which is {kind}")
            if entry.is_symlink() and not _is_within(Path(entry.path), folder):
                raise InputError(
                    f"Folder {folder} holds the link {entry.name!r}, which leads out of it; copy "
                    "the file itself into the folder"
                )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder and of its folders, but for hidden ones."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    yield from visible
    for entry in visible:
        if entry.is_dir(follow_symlinks=False):
            with os.scandir(entry) as entries:
                yield from entries


def _is_within(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder, or into the blobs of the cache that it is in."""
    home, real = Path(os.path.realpath(folder)), Path(os.path.realpath(path))
    places = [home]
    if home.parent.name == "snapshots":
        places.append(home.parent.parent / "blobs")
    return any(real.is_relative_to(place) for place in places)


@contextmanager
def within(place: Path | str) -> Iterator[None]:
    """Append " in PLACE" to the message of an InputError that is raised in a ``with`` block.

    PLACE is ``place``: a file's path, or a text such as ``checkpoint PATH``.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{error} in {place}") from error


def read_text(path: Path, label: str = "") -> str:
    """Return a file's text, without a byte order mark at its start.

    Raises :class:`InputError` if the file is unreadable or not UTF-8.
    """
    with reading(path, label):
        return path.read_text(encoding="utf-8-sig")


def read_lines(path: Path, label: str) -> list[str]:
    """Return the lines of a text file without their line ends (LF, CR LF or CR).

    Raises :class:`InputError` if the file cannot be read.
    """
    lines = read_text(path, label).split("\n")
    return lines if lines[-1] else lines[:-1]


def read_toml(path: Path, label: str) -> dict[str, Any]:
    """Return the content of a TOML file as a dictionary from keys to values.

    Raises :class:`InputError` if the file cannot be read or is not TOML.
    """
    content = read_text(path, label)
    try:
        return tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{label.capitalize()} {path} is not TOML: {error}") from error
