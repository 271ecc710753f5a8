"""Graphs with other parts: what a change makes of each, all else as it was."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from celosia.generators.graph.operations import Head, LowRank, Op, Plane
from celosia.generators.graph.quantized import IntegerGraph

Part = TypeVar("Part")
_WHOLE = (*get_args(Op), IntegerGraph, LowRank, Plane, Head)


def rebuilt(part: Part, change: Callable[[Any], Any]) -> Part:
    """Return a graph, or a part of one, with each part that ``change`` gives another for.

    ``change`` returns None for a part that stays, whose own parts are asked for then.
    """
    whole: Any = part
    found: Any = change(part)
    if found is None and isinstance(part, tuple):
        found = tuple(rebuilt(one, change) for one in part)
    elif found is None and isinstance(part, _WHOLE):
        parts = {one.name: getattr(whole, one.name) for one in fields(whole)}
        found = replace(whole, **{name: rebuilt(one, change) for name, one in parts.items()})
    return part if found is None else found
