"""Copies of graphs in which a function replaces some objects, such as operations or tensors."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from celosia.generators.graph.operations import Head, LowRank, Op, Plane
from celosia.generators.graph.quantized import Graph

Part = TypeVar("Part")
_WHOLE = (*get_args(Op), Graph, LowRank, Plane, Head)


def rebuilt(part: Part, change: Callable[[Any], Any]) -> Part:
    """Return a copy of ``part`` in which the function ``change`` has replaced some objects.

    ``part`` is a graph or any object in a graph, such as an operation, a tuple, a tensor or a
    number. ``change`` takes an object, and returns a replacement, or None to keep the object.

    If ``change`` keeps a graph, an operation, a part of an operation or a tuple, the members of
    this object may still be replaced: ``change`` is then called for each of them.
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
