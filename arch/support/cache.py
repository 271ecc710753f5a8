"""Cache of builds in the user's cache folder, keyed by a digest of all inputs of a build."""

import atexit
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from celosia.arch.errors import RunError

PACKAGE = Path(__file__).parents[2]
"""Folder of package celosia; in a checkout its subpackages are links to the folders beside it."""
ROOT = PACKAGE.parent
"""Folder that contains the package; in a checkout the project's root."""

_SIZES = "sizes.json"  # of an entry's files, by their paths in it
_UNUSED = 60 * 86_400  # seconds, after which an entry is deleted
_FULL = (errno.ENOSPC, errno.EDQUOT)

_spare: Path | None = None
_spare_lock = threading.Lock()


class _UnusableError(RunError):
    """A folder in which nothing can be built; the message names the folder and the reason."""


def cache_folder() -> Path:
    """Return the folder of cached builds; its content can be deleted at any time.

    It is ``CELOSIA_CACHE``, or else ``celosia`` in ``XDG_CACHE_HOME`` if that is an absolute path,
    or else ``~/.cache/celosia``.
    """
    named = os.environ.get("CELOSIA_CACHE")
    if named:
        return Path(os.path.expanduser(named)).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "celosia"


def digest(*parts: str) -> str:
    """Return the cache key of a build: 24 hexadecimal digits, computed from the texts ``parts``.

    These texts are all inputs on which the build depends. The key also depends on the version of
    Python and on the computer's platform.
    """
    content = "\0".join((sys.version, sys.platform, platform.machine(), *parts))
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def find(kind: str, key: str) -> Path | None:
    """Return the cached folder of a build; None if the build is not cached or is damaged.

    ``kind`` is the name of the cache's subfolder for builds of this kind. ``key`` is the
    :func:`digest` of the build's inputs. A build is damaged if one of its files is missing or has
    changed its size.
    """
    for root in (cache_folder(), _spare):
        if root is not None and _is_whole(root / kind / key):
            with contextlib.suppress(OSError):
                os.utime(root / kind / key / _SIZES)
            return root / kind / key
    return None


def cached(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a build; call ``build(folder)`` first if it is not in the cache.

    ``kind`` is a subfolder of the cache. ``key`` is the :func:`digest` of the build's inputs. Other
    processes wait for the one that builds. If the cache cannot be written, a temporary folder is
    used. Raises the errors of ``build``, and :class:`RunError` if all disks are full.
    """
    place = find(kind, key)
    if place is None and _spare is None:
        try:
            place = _make(cache_folder() / kind, key, build)
        except _UnusableError as error:
            _do_without(error)
    return place or _make(_spare_folder() / kind, key, build)


def run_folder(name: str) -> Path:
    """Return a new folder for the temporary files of a run, such as a simulation's log.

    The folder's name begins with ``name``. The caller deletes the folder after the run. The
    function also deletes folders of runs that were killed.
    """
    if _spare is None:
        try:
            return _new_run(cache_folder() / "runs", name)
        except _UnusableError as error:
            _do_without(error)
    return _new_run(_spare_folder() / "runs", name)


def is_full(error: BaseException) -> bool:
    """Return whether an exception, or the log quoted in its message, reports a full disk."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return isinstance(error, RunError) and any(os.strerror(each) in str(error) for each in _FULL)


def _new_run(runs: Path, name: str) -> Path:
    with _usable(runs):
        runs.mkdir(parents=True, exist_ok=True)
        for left in runs.glob("*.*.*/"):
            owner = left.name.split(".")[-2]
            if owner.isdigit() and not _runs(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{name}.{os.getpid()}.", dir=runs))


def _make(folder: Path, key: str, build: Callable[[Path], None]) -> Path:
    place = folder / key
    with _usable(folder), contextlib.ExitStack() as held:
        folder.mkdir(parents=True, exist_ok=True)
        lock = held.enter_context((folder / f"{key}.lock").open("a"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_whole(place):
            return place
        # Only the lock's holder builds, so these folders are from killed processes.
        for left in (place, *folder.glob(f"{key}.*/"), *_unused(folder)):
            shutil.rmtree(left, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder))
        opened = held.pop_all()
    with opened:
        try:
            build(temporary)
            sizes = {
                str(path.relative_to(temporary)): path.stat().st_size
                for path in sorted(temporary.rglob("*"))
                if path.is_file() and not path.is_symlink()
            }
            (temporary / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")
            temporary.rename(place)
        except BaseException as error:
            full = is_full(error)
            shutil.rmtree(temporary, ignore_errors=True)
            if full:
                raise _UnusableError(f"The disk of {folder} is full") from error
            raise
    return place


def _is_whole(place: Path) -> bool:
    try:
        sizes = json.loads((place / _SIZES).read_text(encoding="utf-8"))
        return all((place / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _unused(folder: Path) -> Iterator[Path]:
    """Yield the entries that no process has requested for 60 days."""
    for sizes in folder.glob(f"*/{_SIZES}"):
        with contextlib.suppress(OSError):
            if time.time() - sizes.stat().st_mtime > _UNUSED:
                yield sizes.parent


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "is full" if is_full(error) else f"cannot be written ({error.strerror})"
        raise _UnusableError(f"{folder} {reason}") from error


def _spare_folder() -> Path:
    """Return the temporary folder for this process's builds."""
    global _spare
    with _spare_lock:
        if _spare is None:
            _spare = Path(tempfile.mkdtemp(prefix="celosia."))
            atexit.register(shutil.rmtree, _spare, ignore_errors=True)
        return _spare


def _do_without(error: _UnusableError) -> None:
    """Print the reason once, and switch this process to a temporary folder for builds."""
    if _spare is None:
        print(
            f"celosia: {error}; builds are kept in {_spare_folder()} until this command ends "
            "(CELOSIA_CACHE names another folder)",
            file=sys.stderr,
        )


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
