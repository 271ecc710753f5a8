"""A digest of the sources, which results depend on."""

import functools
import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("arch", "hdl", "sim", "generators", "tb", "fpga")


@functools.cache
def sources() -> str:
    """Return a digest of everything but the command line: another one after any change."""
    content = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(str(path.relative_to(_ROOT)).encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]
