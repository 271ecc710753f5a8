"""Reading of graphs whose inputs may or may not begin with a batch axis."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from celosia.arch.errors import InputError
from celosia.arch.files import reading
from celosia.generators.frontend.onnx.file import data_files, file_and_output, read_model
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.halves import widened

Used = TypeVar("Used")
Stamp = tuple[tuple[int, int], ...]
"""Modification time (nanoseconds) and size (bytes) of each file of a model."""


def read_graph(path: Path, tokens: int, use: Callable[[Graph], Used]) -> Used:
    """Call the function ``use`` with the graph in an ONNX file, and return the result.

    ``tokens`` is the number of tokens, or 0 if the graph fixes it. If reading or ``use`` raises
    :class:`InputError`, and the first input has at most one axis, the graph is read and used again
    with inputs that have no batch axis. If that fails too, the first error is raised.
    """
    known = stamp(path)
    try:
        return use(_graph(path, tokens, True, known))
    except InputError as error:
        first = read_model(path).graph.input[:1]
        sizes = [axis.dim_value for value in first for axis in value.type.tensor_type.shape.dim]
        if len(sizes) != 1 and (not sizes or sizes[0] < 2):
            raise
        try:
            return use(_graph(path, tokens, False, known))
        except InputError:
            raise error from None


def stamp(path: Path) -> Stamp:
    """Return (modification time in nanoseconds, size in bytes) of an ONNX file and its data files.

    If the results of two calls differ, a file was written between the calls. The path may end in
    a colon and the name of an output. Raises :class:`InputError` if the ONNX file cannot be read.
    """
    file = file_and_output(path)[0]
    with reading(file, "ONNX file"):
        own = _time_and_size(file)
    data = [beside for beside in _data_files(file, own) if beside.is_file()]
    return (own, *map(_time_and_size, data))


def _time_and_size(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=8)
def _data_files(file: Path, _own: tuple[int, int]) -> list[Path]:
    return data_files(file)


@lru_cache(maxsize=2)
def _graph(path: Path, tokens: int, batched: bool, _stamp: Stamp) -> Graph:
    """Return the graph in a file; ``_stamp`` differs if the file was written again."""
    return Graph(path, widened(read_model(path)), tokens, batched=batched)
