"""Numbers of tokens that a graph supports if the graph's input does not fix one."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.explain import held
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.inputs import OpenLengthError
from celosia.generators.frontend.onnx.reading import read_graph, stamp

FEW = 3
"""Tokens with which a graph shows its parts: with fewer, masks of all kinds look alike."""
_MOST = 1 << 16
"""Tokens of the longest text that is tried."""
_TRIED = 64
"""Most lengths that are tried."""


def few(path: Path) -> int:
    """Return ``FEW``, with which the importer reads a graph that fixes no number of tokens.

    The result is 0 if the graph fixes the number of tokens, or cannot be read.
    """
    try:
        read_graph(path, 0, lambda graph: graph)
    except OpenLengthError:
        return FEW
    except InputError:
        return 0
    return 0


def made_for(path: Path) -> int:
    """Return the only number of tokens with which a graph can be run, or 0.

    The result is 0 if the input fixes the number, if nodes run with any number, or if some nodes
    are unsupported.
    """
    return _made_for(path, stamp(path))


@lru_cache(maxsize=8)
def _made_for(path: Path, _stamp: tuple[int, int]) -> int:
    if not few(path) or _runs(path, FEW):
        return 0
    try:
        graph = read_graph(path, FEW, lambda graph: graph)
    except InputError:
        return 0
    if held(graph.model):
        return 0
    return next((size for size in _sizes(graph) if _runs(path, size)), 0)


def longest(path: Path, graph: Graph, start: str) -> int:
    """Return the largest number of tokens with which a graph can compute the value ``start``.

    ``start`` is the name of a value; ``graph`` was read with :func:`few` tokens. The function tries
    only the integers in the graph's constants and the sizes of constants, because one of these sets
    the limit. The result is 0 if none of them is the limit.
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
            graph.run_part(graph.part([value], []), graph.feeds(inputs, tokens))
        else:
            graph.run(inputs, tokens)

    try:
        read_graph(path, tokens, run)
    except InputError:
        return False
    return True


def _sizes(graph: Graph) -> list[int]:
    """Return the numbers in a graph's constants, and their numbers of rows, in ascending order."""
    sizes = {*_numbers(graph.known.values()), *_numbers(graph.constants())}
    return sorted(size for size in sizes if FEW < size <= _MOST)[:_TRIED]


def _numbers(constants: Iterable[Any]) -> Iterable[int]:
    for constant in constants:
        if constant.ndim > 1:
            yield from constant.shape
        elif constant.dtype.kind == "i" and constant.size < _TRIED:
            yield from constant.ravel().tolist()
