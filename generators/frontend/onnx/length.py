"""Functions that find the number of tokens of a graph whose first input does not fix it."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.explain import unsupported_parts
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.inputs import OpenLengthError
from celosia.generators.frontend.onnx.reading import Stamp, read_graph, stamp

FEW = 3
"""Number of tokens with which layers are recognized; with fewer tokens, all masks look alike."""
_MOST = 1 << 16
"""Tokens of the longest text that is tried."""
_TRIED = 64
"""Most lengths that are tried."""


def probe_length(path: Path) -> int:
    """Return ``FEW`` (3) if the graph in a file accepts any number of tokens, otherwise 0.

    If the result is 3, the importer reads the graph with 3 tokens to recognize its layers. The
    result is also 0 if the graph cannot be read.
    """
    try:
        read_graph(path, 0, lambda graph: graph)
    except OpenLengthError:
        return FEW
    except InputError:
        return 0
    return 0


def required_length(path: Path) -> int:
    """Return the only number of tokens with which an ONNX graph can be run, or 0 if there is none.

    In some graphs the input accepts any number, but a constant, such as a shape, fits only one. The
    result is also 0 if the input itself fixes the number.
    """
    return _required_length(path, stamp(path))


@lru_cache(maxsize=8)
def _required_length(path: Path, _stamp: Stamp) -> int:
    if not probe_length(path) or _runs(path, FEW):
        return 0
    try:
        graph = read_graph(path, FEW, lambda graph: graph)
    except InputError:
        return 0
    if unsupported_parts(graph.model):
        return 0
    return next((size for size in _sizes(graph) if _runs(path, size)), 0)


def longest(path: Path, graph: Graph, start: str) -> int:
    """Return the largest number of tokens with which a graph can compute the value named ``start``.

    Only numbers that appear in the graph's constants, such as the size of a position table, are
    tried. The result is 0 if none of them is the limit. ``path`` is the graph's file.
    """
    for size in reversed([*_sizes(graph)]):
        if _runs(path, size, start) and not _runs(path, size + 1, start):
            return size
    return 0


def _runs(path: Path, tokens: int, value: str = "") -> bool:
    """Return whether a graph runs with some tokens, to its output or to another value."""

    def run(graph: Graph) -> None:
        inputs = graph.random()
        if value:
            graph.run_part(graph.subgraph_runner([value], []), graph.feeds(inputs, tokens))
        else:
            graph.run(inputs, tokens)

    try:
        read_graph(path, tokens, run)
    except InputError:
        return False
    return True


def _sizes(graph: Graph) -> list[int]:
    """Return axis sizes of a graph's constants and integers in small ones, in ascending order."""
    sizes = {*_numbers(graph.known.values()), *_numbers(graph.constants())}
    return sorted(size for size in sizes if FEW < size <= _MOST)[:_TRIED]


def _numbers(constants: Iterable[Any]) -> Iterable[int]:
    for constant in constants:
        if constant.ndim > 1:
            yield from constant.shape
        elif constant.dtype.kind == "i" and constant.size < _TRIED:
            yield from constant.ravel().tolist()
