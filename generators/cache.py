"""Cache of builds, by a digest of their sources."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds the packages."""

BUILD = ROOT / "build"
"""Folder of builds; anything in it can be deleted at any time."""


def digest(*parts: str) -> str:
    """Return a short name for a build that depends on some texts and on this Python."""
    content = "\0".join((sys.version, *parts))
    return hashlib.sha256(content.encode()).hexdigest()[:24]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def cached(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a build, made by ``build(folder)`` where it does not exist yet.

    Several processes may ask for the same build at once: one makes it and the others wait. A
    build that fails leaves nothing.
    """
    place = BUILD / kind / key
    if place.is_dir():
        return place
    with _locked(BUILD / kind / f"{key}.lock"):
        if not place.is_dir():
            # Only who holds the lock makes one, so these are of processes that were killed.
            for left in place.parent.glob(f"{key}.*/"):
                shutil.rmtree(left, ignore_errors=True)
            temporary = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=place.parent))
            try:
                build(temporary)
                temporary.rename(place)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return place


def run_folder(name: str) -> Path:
    """Return a new folder for a run of this process, and delete those of processes that are gone.

    Their owners delete the folders that they make; one that was killed could not.
    """
    runs = BUILD / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for left in runs.glob("*.*.*/"):
        owner = left.name.split(".")[-2]
        if owner.isdigit() and not _runs(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}.{os.getpid()}.", dir=runs))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
