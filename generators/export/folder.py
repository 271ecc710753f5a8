"""Files of a compiled model in a folder that may hold those of another one."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from celosia.generators.export.manifest import MANIFEST

Files = dict[str, str | bytes]
_KEY = "files"


def with_digests(files: Mapping[str, str | bytes]) -> Files:
    """Return a compiled model's files, with the SHA-256 of each added to the manifest."""
    described = json.loads(files[MANIFEST])
    described[_KEY] = {
        name: _digest(text.encode() if isinstance(text, str) else text)
        for name, text in files.items()
        if name != MANIFEST
    }
    return {**files, MANIFEST: json.dumps(described, indent=2) + "\n"}


def outdated(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Return the files in a folder that its manifest names and the new files do not replace.

    Files that were changed since, or that the manifest does not name, belong to the user and stay.
    """
    try:
        named = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))[_KEY]
        return [
            path
            for name, digest in named.items()
            if name not in files and (path := folder / Path(name).name).name == name
            if path.is_file() and _digest(path.read_bytes()) == digest
        ]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
