"""Rounds a model's requantization multipliers to the bits that a machine stores."""

from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.graph.operations import Plane
from celosia.generators.graph.quantized import D, Graph
from celosia.generators.graph.rebuilt import rebuilt
from celosia.generators.graph.tensors import Rescale
from celosia.generators.lower.fitting import FitError

_WHOLE = 32
"""Width of a multiplier and of a bias (bits)."""


def narrowed_parameters(graph: Graph[D], config: Config) -> Graph[D]:
    """Return a model whose requantization multipliers are rounded to ``multiplier_width`` bits.

    Multipliers are rounded to nearest, ties away from zero. A 16-bit multiplier changes by at most
    2**-15 of its value. Raises :class:`FitError` if a bias has more than ``bias_width`` bits.
    """
    width = config.vector.multiplier_width
    biases = [0]

    def held(part: Any) -> Any:
        if isinstance(part, (Rescale, Plane)):
            biases.extend((int(part.bias.min()), int(part.bias.max())))
        if isinstance(part, Rescale):
            multiplier, shift = rounded(part.multiplier, part.shift, _WHOLE - width)
            return replace(part, multiplier=multiplier, shift=shift)
        return None

    narrowed = rebuilt(graph, held)
    low, high = min(biases), max(biases)
    needed = 1 + max(high.bit_length(), (-1 - low).bit_length() if low < 0 else 0)
    if needed > config.vector.bias_width:
        raise FitError(
            f"Model {graph.description.name} has biases of {needed} bits, but bias_width is "
            f"{config.vector.bias_width}",
            {"bias_width": needed},
        )
    return narrowed if width < _WHOLE else graph


def check_full_parameters(name: str, config: Config) -> None:
    """Raise :class:`InputError` if a machine's requantization parameters are too narrow.

    The configuration must have ``multiplier_width`` 32, ``bias_width`` 32 and ``pre_depth`` 0.
    Decoders whose weights all stay on the chip need no such check. ``name`` is the model's name.
    """
    for field, whole in (("multiplier_width", _WHOLE), ("bias_width", _WHOLE), ("pre_depth", 0)):
        if config.read(field) != whole:
            raise InputError(
                f"Model {name} needs {field} {whole}, which only decoders whose weights stay on "
                f"the chip do not need, but it is {config.read(field)}"
            )


def rounded(multiplier: Any, shift: Any, below: int) -> tuple[Any, Any]:
    """Return requantization multipliers rounded to multiples of ``2**below``, and their new shifts.

    A requantization factor is ``multiplier * 2**(shift - 31)``. If rounding raises a multiplier to
    2**31, the multiplier is halved, and its shift is increased by 1.
    """
    if not below:
        return multiplier, shift
    size = (np.abs(multiplier) + (1 << below >> 1)) >> below << below
    carried = size >> 31  # a power of two more, which the shift takes
    return np.sign(multiplier) * (size >> carried), shift + carried
