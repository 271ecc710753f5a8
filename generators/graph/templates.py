"""Comparison of layers: equal layers differ only in names, scales and parameters."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from celosia.arch.formats import WeightFormat
from celosia.generators.graph.operations import Attention, Op
from celosia.generators.graph.tensors import Tensor


def are_alike(layers: Sequence[tuple[Op, ...]]) -> bool:
    """Return whether all layers of a model compile to equal instructions, except for addresses."""
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
