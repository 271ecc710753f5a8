"""A decoder's requantization parameters in the bits that a machine holds."""

from dataclasses import fields, replace
from typing import Any, cast, get_args

import numpy as np

from arch.config import Config
from arch.errors import InputError
from generators.fitting import FitError
from generators.graph import Decoder, IntegerGraph, LowRank, Op, Plane, Rescale
from generators.graph import Head as AttentionHead

_PARTS = (*get_args(Op), IntegerGraph, LowRank, Plane, AttentionHead)
_WHOLE = 32
"""Width of a multiplier and of a bias (bits)."""


def held_parameters(decoder: Decoder, config: Config) -> Decoder:
    """Return a decoder whose multipliers have the upper bits that a machine holds of them.

    They are rounded to nearest, ties away from zero, so that a factor of 16 bits is within 2**-16
    of what it was. Raises :class:`FitError` where a bias is wider than those that it holds.
    """
    width = config.multiplier_width
    biases = [0]
    found = cast(Decoder, _changed(decoder, _WHOLE - width, biases))
    low, high = min(biases), max(biases)
    needed = 1 + max(high.bit_length(), (-1 - low).bit_length() if low < 0 else 0)
    if needed > config.bias_width:
        raise FitError(
            f"Model {decoder.description.name} has biases of {needed} bits, but bias_width is "
            f"{config.bias_width}",
            {"bias_width": needed},
        )
    return found if width < _WHOLE else decoder


def refuse_held(name: str, config: Config) -> None:
    """Refuse a machine that does not hold all bits of parameters, or not all for accumulators.

    Raises :class:`InputError`.
    """
    for field, whole in (("multiplier_width", _WHOLE), ("bias_width", _WHOLE), ("pre_depth", 0)):
        if getattr(config, field) != whole:
            raise InputError(
                f"Model {name} needs {field} {whole}, which only decoders whose weights stay on "
                f"the chip do not need, but it is {getattr(config, field)}"
            )


def _changed(value: Any, below: int, biases: list[int]) -> Any:
    """Return a part of a graph with other multipliers, and note the ends of its biases."""
    if isinstance(value, tuple):
        return tuple(_changed(one, below, biases) for one in value)
    if not isinstance(value, (*_PARTS, Rescale)):
        return value
    if isinstance(value, (Rescale, Plane)):
        biases += [int(value.bias.min()), int(value.bias.max())]
    if isinstance(value, Rescale):
        multiplier, shift = rounded(value.multiplier, value.shift, below)
        return replace(value, multiplier=multiplier, shift=shift)
    whole: Any = value
    parts = {one.name: getattr(whole, one.name) for one in fields(whole)}
    return replace(whole, **{name: _changed(one, below, biases) for name, one in parts.items()})


def rounded(multiplier: Any, shift: Any, below: int) -> tuple[Any, Any]:
    """Return multipliers whose lowest bits, ``below`` of them, are 0, and their shifts."""
    if not below:
        return multiplier, shift
    size = (np.abs(multiplier) + (1 << below >> 1)) >> below << below
    carried = size >> 31  # a power of two more, which the shift takes
    return np.sign(multiplier) * (size >> carried), shift + carried
