"""A digest of the sources, which results depend on."""

import functools
import hashlib

from generators.cache import ROOT

_PACKAGES = ("arch", "hdl", "sim", "generators", "tb", "fpga")


@functools.cache
def sources() -> str:
    """Return a digest of everything but the command line: another one after any change."""
    content = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(str(path.relative_to(ROOT)).encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]
