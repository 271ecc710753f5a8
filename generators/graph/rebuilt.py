"""Copies of graphs in which a function replaces some objects, such as operations or tensors."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from celosia.generators.graph.operations import Head, LowRank, Op, Plane
from celosia.generators.graph.quantized import Graph

Part = TypeVar("Part")
_WHOLE = (*get_args(Op), Graph, LowRank, Plane, Head)


def rebuilt(part: Part, change: Callable[[Any], Any]) -> Part:
    """Return a copy of a graph, or of an object in a graph, in which ``change`` replaces objects.

    The function ``change`` takes an object, and returns its replacement or None. If the result for
    a graph, an operation or a tuple is None, ``change`` is called for each member instead.
    """
    whole: Any = part
    changed: Any = change(part)
    if changed is None and isinstance(part, tuple):
        changed = tuple(rebuilt(member, change) for member in part)
    elif changed is None and isinstance(part, _WHOLE):
        parts = {field.name: getattr(whole, field.name) for field in fields(whole)}
        changed = replace(
            whole, **{name: rebuilt(member, change) for name, member in parts.items()}
        )
    return part if changed is None else changed
