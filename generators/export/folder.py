"""Computes the digests in a compiled model's manifest, and finds files of an earlier model.

A digest is the SHA-256 hash of a file of the compiled model. The files of an earlier model are
found in the folder of an export, so that the export can delete them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celosia.generators.frontend.other_files import MANIFEST

Files = dict[str, str | bytes]
DIGESTS, OWN_DIGEST = "files", "digest"
"""The manifest's entries with the digest of each other file, and of the manifest itself."""
ORIGIN = "origin"
"""The manifest's entry that names the float model's file, which a user may move."""


def with_digests(files: Mapping[str, str | bytes]) -> Files:
    """Return a compiled model's files, and store the SHA-256 digest of each in the manifest.

    ``files`` and the result are dictionaries from file name to content.
    """
    described = json.loads(files[MANIFEST])
    described[DIGESTS] = {
        name: digest(text.encode() if isinstance(text, str) else text)
        for name, text in files.items()
        if name != MANIFEST
    }
    described[OWN_DIGEST] = manifest_digest(described)
    return {**files, MANIFEST: json.dumps(described, indent=2) + "\n"}


def manifest_digest(described: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of a compiled model's manifest, in hexadecimal.

    The manifest ``described`` is a dictionary of facts about the model. Its entries ``digest`` (the
    stored digest) and ``origin`` (the float model's file) do not affect the result.
    """
    left_out = (OWN_DIGEST, ORIGIN)
    entries = {name: value for name, value in described.items() if name not in left_out}
    return digest(json.dumps(entries, sort_keys=True).encode())


def outdated(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Return the paths of a folder's files that belong to an earlier model, and not to the new one.

    ``files`` are the new model's files by name. The folder's manifest names the earlier model's
    files. A file that was changed after the export is not returned: it belongs to the user.
    """
    try:
        named = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))[DIGESTS]
        return [
            path
            for name, known in named.items()
            if name not in files and (path := folder / Path(name).name).name == name
            if path.is_file() and digest(path.read_bytes()) == known
        ]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []


def digest(data: bytes) -> str:
    """Return the SHA-256 digest of a file's content, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
