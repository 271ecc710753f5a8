"""Write output files to a temporary folder first, then move all of them to their folder."""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from celosia.arch.errors import InputError


def check_folder(folder: Path, names: Iterable[str] = ()) -> None:
    """Raise :class:`InputError` if files with these ``names`` cannot be written into ``folder``.

    The folder need not exist, and is not created.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        what = "it" if place == folder else place
        raise InputError(f"Cannot write to {folder}: {what} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        reason = "its file system is read-only" if read_only else "permission denied"
        raise InputError(f"Cannot write to {folder}: {reason}")
    for name in names:
        if (folder / name).is_dir():
            raise InputError(f"Cannot write {folder / name}: it is a folder")


def write_files(
    folder: Path, files: Mapping[str, str | bytes], outdated: Sequence[Path] = ()
) -> None:
    """Write ``files`` (contents by file name) into a folder, which is created if needed.

    No file changes until all are written to a temporary folder. Files with the paths ``outdated``
    are then deleted. Raises :class:`InputError` if the folder cannot be written.
    """
    check_folder(folder, files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".celosia.", dir=folder) as inside:
            for name, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                (Path(inside) / name).write_bytes(data)
            for name in files:
                os.replace(Path(inside) / name, folder / name)
        for path in outdated:
            path.unlink()
    except OSError as error:
        raise InputError(f"Cannot write to {folder}: {error.strerror}") from error
