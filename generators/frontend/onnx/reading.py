"""Reading of graphs whose inputs may or may not begin with a batch axis."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from celosia.arch.errors import InputError
from celosia.arch.files import reading
from celosia.generators.frontend.onnx.file import file_and_output, read_model
from celosia.generators.frontend.onnx.graph import Graph

Used = TypeVar("Used")


def read_graph(path: Path, tokens: int, use: Callable[[Graph], Used]) -> Used:
    """Read the graph in a file, call ``use`` with the graph, and return the result of the call.

    The graph is first read with a batch axis at the beginning of each input. If reading or ``use``
    raises :class:`InputError`, the graph is read again without batch axes, and ``use`` is called
    again. The second attempt is made only if the first input has a single axis, or a first axis of
    a fixed size above 1. ``tokens`` is the number of tokens, or 0 if the graph fixes it.

    If no attempt succeeds, the error of the first attempt is raised. This error is an
    ``OpenLengthError`` if neither ``tokens`` nor the graph gives the number of tokens.
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


def stamp(path: Path) -> tuple[int, int]:
    """Return (modification time in nanoseconds, size in bytes) of the ONNX file in a path.

    The caller compares two results to find out whether the file was written again. The path may end
    in a colon and the name of an output. Raises :class:`InputError` if the file cannot be read.
    """
    file = file_and_output(path)[0]
    with reading(file, "ONNX file"):
        stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=2)
def _graph(path: Path, tokens: int, batched: bool, _stamp: tuple[int, int]) -> Graph:
    """Return the graph in a file; ``_stamp`` differs if the file was written again."""
    return Graph(path, read_model(path), tokens, batched=batched)
