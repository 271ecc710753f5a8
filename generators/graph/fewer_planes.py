"""Copies of models that use only the upper bits of each nested weight.

Nested weights are stored as bit planes of 2 or 4 bits, the upper bits first. A program that reads
only the first planes computes with coarser weights and loads fewer bytes.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.formats import NESTED, OPERAND_BITS, PLANES
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import Graph, IntegerGraph
from celosia.generators.graph.rebuilt import rebuilt

Model = TypeVar("Model", bound=IntegerGraph)

BITS = tuple(sorted(PLANES, reverse=True))
"""Numbers of bits at which nested weights can be read, in descending order (bits)."""


def is_nested(model: IntegerGraph) -> bool:
    """Return whether any linear layer of a model has nested weights, stored as bit planes."""
    return any(isinstance(op, Linear) and op.planes for op in model.ops)


def planes_of(bits: int) -> int:
    """Return the number of bit planes that contain the upper ``bits`` bits of a nested weight.

    A nested weight is stored in planes of 2 or 4 bits, the upper bits first. A program may read
    the first planes only.
    """
    return [*PLANES].index(bits) + 1


def check_bits(bits: Iterable[int], weights: str) -> None:
    """Raise :class:`InputError` if the weights' format does not allow one of the widths ``bits``.

    A width is the number of upper bits of each weight that a program reads. ``weights`` is the name
    of the format. Every format allows the width 8; only nested weights also allow 4 and 2.
    """
    for width in bits:
        if width not in BITS:
            raise InputError(f"Bits must be {', '.join(map(str, BITS[:-1]))} or 2, not {width}")
        if width != OPERAND_BITS and weights != NESTED:
            raise InputError(f"Bits {width} need weights {NESTED}, but they are in {weights}")


def with_upper_bits(model: Model, bits: int) -> Model:
    """Return a copy of a model that uses only the upper ``bits`` bits of each nested weight.

    Quantization scales do not change. Biases change with the weights. If ``bits`` is 8, the result
    is ``model`` itself. The encoder of an encoder-decoder keeps all bits.
    """
    if bits == OPERAND_BITS:
        return model
    count = planes_of(bits)

    def upper(part: Any) -> Any:
        if isinstance(part, Graph) and part.encodes:
            return part
        if not isinstance(part, Linear) or not part.planes:
            return None
        planes = part.planes[:count]
        weight = np.sum([plane.values for plane in planes], axis=0)
        # A bias compensates the input's zero point times the weights.
        rescale = replace(part.rescale, bias=planes[-1].bias)
        return replace(part, weight=weight, rescale=rescale, planes=planes)

    return rebuilt(model, upper)
