"""Copies of graphs with replaced parts."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from celosia.generators.graph.operations import Head, LowRank, Op, Plane
from celosia.generators.graph.quantized import Graph

Part = TypeVar("Part")
_WHOLE = (*get_args(Op), Graph, LowRank, Plane, Head)


def rebuilt(part: Part, change: Callable[[Any], Any]) -> Part:
    """Return a copy of ``part``, which is a graph or a part of one, with some parts replaced.

    The function ``change`` gets a part and returns its replacement. If it returns None, the parts
    inside are visited, and a part without parts inside is kept.
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
