"""Functions that return C source text: arrays, strings, identifiers, and all files of a model.

The files of a model include a driver, which is C code that runs the model on the accelerator.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from celosia.arch.registers import systemrdl
from celosia.generators.export.registers import HEADER, SOURCE, header
from celosia.generators.runtime.host import Host

_DRIVER = Path(__file__).parent / "driver"
WIDTH = 8
"""Default number of array elements in a line of source text."""
_KEYWORD = re.compile(r"^(?=\d)|\W", re.ASCII)
_PLAIN = re.compile(r"[^ -~]|[\\?]|\*/|/\*")
_LONGEST = 64  # characters of an identifier, which names files, too


@dataclass(frozen=True)
class Samples:
    """C code that declares and defines sample inputs of a model and the expected outputs."""

    sizes: str
    """Macros of a header."""
    declared: str
    """Declarations of a header."""
    defined: Sequence[str]
    """Lines of the source."""


def model_files(
    code: Host,
    modules: Sequence[str],
    arrays: Iterable[str],
    fields: Iterable[str],
    samples: Samples,
) -> dict[str, str | bytes]:
    """Return the C files of a compiled model and its driver by file name.

    ``modules`` are names of the driver's C modules; the last module runs the model. ``arrays`` are
    C lines that define constant arrays. ``fields`` are the C initializers of the model's struct.
    Raises :class:`InputError` if a Python package is missing.
    """
    name, kind, depth = identifier(code.name), modules[-1], code.config.control.program_depth
    paths = [_DRIVER / f"{module}{ending}" for module in modules for ending in (".c", ".h")]
    upper, include = name.upper(), f'#include "{name}_model.h"\n'
    declared = f"""\
/* Model {comment(code.name)} for configuration {comment(code.config.name)}. */
#ifndef {upper}_MODEL_H
#define {upper}_MODEL_H

#include "{kind}.h"

{samples.sizes}
extern const {kind}_model_t {name}_model;

{samples.declared}
#endif
"""
    source = [
        include,
        *array("static const uint32_t program", words(code.words)),
        *arrays,
        f"const {kind}_model_t {name}_model = {{",
        *(f"    {field}" for field in fields),
        "};\n",
    ]
    return {
        HEADER: header(depth),
        SOURCE: systemrdl(depth),
        **{path.name: path.read_text(encoding="utf-8") for path in paths},
        f"{name}_model.h": declared,
        f"{name}_model.c": "\n".join(source),
        f"{name}_samples.c": "\n".join([include, *samples.defined]),
    }


def words(data: bytes | Iterable[int]) -> list[str]:
    """Return a list of 32-bit words, written as C constants.

    The words are the numbers in ``data``. If ``data`` is bytes, each word has four bytes, the least
    significant first, and zeros fill the last word.
    """
    if isinstance(data, bytes):
        data = np.frombuffer(data + bytes(-len(data) % 4), "<u4").tolist()
    return [f"0x{word:08x}" for word in data]


def initializer(values: Iterable[object]) -> str:
    """Return the C initializer of a struct or an array: the values in braces."""
    return f"{{{', '.join(map(str, values))}}}"


def identifier(name: str) -> str:
    """Return a valid C identifier that is derived from a name.

    Each character that is not allowed is replaced by ``_``. A name that begins with a digit gets
    ``_`` in front. Long names are cut to 64 characters.
    """
    return _KEYWORD.sub("_", name)[:_LONGEST] or "_"


def comment(text: str) -> str:
    """Return ``text`` with ``_`` for each character that is unsafe inside a C comment.

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
