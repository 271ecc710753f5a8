"""C sources: arrays, strings, identifiers, and the source files of the driver."""

import re
from collections.abc import Iterable
from pathlib import Path

from celosia.arch.config import Config
from celosia.arch.registers import systemrdl
from celosia.generators.export.registers import HEADER, SOURCE, header

_DRIVER = Path(__file__).parent / "driver"
WIDTH = 8
"""Elements in a line."""
_KEYWORD = re.compile(r"^(?=\d)|\W", re.ASCII)
_PLAIN = re.compile(r"[^ -~]|[\\?]|\*/|/\*")
_LONGEST = 64  # characters of an identifier, which names files, too


def driver(config: Config, *names: str) -> dict[str, str | bytes]:
    """Return the files of a machine's C driver: a dictionary from file name to content.

    ``names`` are the driver's C modules; each has a ``.c`` and a ``.h`` file. Two further files
    describe the machine's registers: a C header and a SystemRDL file.

    Raises :class:`InputError` if a Python package that generates the header is missing.
    """
    files = [_DRIVER / f"{name}{ending}" for name in names for ending in (".c", ".h")]
    sources = {path.name: path.read_text(encoding="utf-8") for path in files}
    depth = config.control.program_depth
    return {HEADER: header(depth), SOURCE: systemrdl(depth), **sources}


def identifier(name: str) -> str:
    """Return a valid C identifier that is made of a name.

    Each character that is not allowed is replaced by ``_``. A name that begins with a digit gets
    ``_`` in front. Long names are cut to 64 characters.
    """
    return _KEYWORD.sub("_", name)[:_LONGEST] or "_"


def comment(text: str) -> str:
    """Return a text that is safe inside a C comment: ``_`` replaces unsafe characters.

    Unsafe are question marks, backslashes, comment delimiters, and characters outside printable
    ASCII.
    """
    return _PLAIN.sub("_", text)


def array(declaration: str, values: Iterable[str], width: int = WIDTH) -> list[str]:
    """Return the source lines of a constant C array; an empty list if the array is empty.

    ``declaration`` is the C text before ``[]``. Each line has ``width`` elements of ``values``.
    """
    items = list(values)
    if not items:
        return []
    lines = [
        f"    {', '.join(items[place : place + width])}," for place in range(0, len(items), width)
    ]
    return [f"{declaration}[] = {{", *lines, "};\n"]


def string(text: str | bytes) -> str:
    """Return a text as a C string literal."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in (text.encode() if isinstance(text, str) else text)
    )
    return f'"{escaped}"'
