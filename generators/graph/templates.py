"""Comparison of layers by their instructions, and extension of a graph by copies of its last layer.

The compiler uses this module to check early, from a model's first layers, whether the whole model
fits a configuration.
"""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from celosia.arch.formats import WeightFormat
from celosia.generators.graph.operations import Attention
from celosia.generators.graph.quantized import D, Graph
from celosia.generators.graph.rebuilt import Part, rebuilt
from celosia.generators.graph.tensors import Tensor


def are_alike(layers: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether all layers of a model compile to equal instructions, except for addresses.

    Each layer is a tuple: its operations in an integer graph, or its nodes in a float graph.
    """
    return len({_template(layer) for layer in layers}) <= 1


def _template(part: Any) -> Any:
    """Return, hashable, all of a part of a graph that the shape of a program depends on."""
    if isinstance(part, Tensor):
        return part.buffer, part.rows, part.columns, part.zero, part.width, part.home
    if isinstance(part, np.ndarray):
        return part.shape
    if isinstance(part, float | str):
        return None
    if isinstance(part, tuple):
        return tuple(map(_template, part))
    if is_dataclass(part) and not isinstance(part, WeightFormat):
        members = tuple(_template(getattr(part, field.name)) for field in fields(part))
        # Heads that are alike share their parameter words.
        return type(part), members, isinstance(part, Attention) and part.alike
    return part


def deepened(graph: Graph[D], model: D) -> Graph[D]:
    """Return the integer graph of a whole model, extended from the graph of its first layers.

    ``graph`` has the first layers, and ``model`` is the description of the whole model. Each
    missing layer is a copy of the last layer of ``graph``, with the new layer's number in its
    tensor names.
    """
    last = len(graph.layers) - 1
    more, source = range(1, model.layers - last), graph.source
    if source is not None:
        # It makes the keys and values of each layer.
        own = tuple(op for op in source.after if op.target.name.startswith(f"layers.{last}."))
        after = source.after + tuple(op for count in more for op in _later(own, count))
        source = replace(source, after=after)
    return replace(
        graph,
        description=model,
        output=_later(graph.output, len(more)),
        layers=graph.layers + tuple(_later(graph.layers[last], count) for count in more),
        after=_later(graph.after, len(more)),
        source=source,
    )


def _later(part: Part, count: int) -> Part:
    """Return a part of a graph whose tensors have the names of those ``count`` layers later."""

    def named(name: re.Match[str]) -> str:
        return f"layers.{int(name[1]) + count}."

    def renamed(tensor: Any) -> Tensor | None:
        if not isinstance(tensor, Tensor):
            return None
        return replace(tensor, name=re.sub(r"^layers\.(\d+)\.", named, tensor.name))

    return rebuilt(part, renamed)
