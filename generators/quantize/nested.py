"""Nested weights: INT8 weights whose upper 4 or 2 bits can be read alone, as coarser weights.

See equation (20) of ``docs/formats.md``.
"""

import numpy as np

from celosia.arch.formats import FORMATS, OPERAND_BITS, PLANES
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.stored import Stored
from celosia.generators.quantize.stored import Ints, error_spread, round_compensated

LOWER = 4
"""Bits of the lowest plane."""
MOST = 127
"""Largest magnitude of a weight of either sign."""
_WHOLE = 1e-4
"""Distance from an integer at which a weight is that integer (steps)."""


def nest(weights: Floats, inputs: Floats) -> tuple[Ints, Floats]:
    """Round float weights [n, k] to INT8 whose upper bits alone also approximate the weights.

    Returns the INT8 weights [k, n] and the scale of each output [n]. ``inputs`` [count, k] are
    sample inputs of the layer, divided by their scales. If all weights are integer multiples of
    their output's scale, no weight changes.
    """
    exact, steps = _in_steps(weights)
    if is_nested(weights):
        return np.rint(exact).astype(np.int64).T, steps
    inner, middle = error_spread(inputs, weights.shape[1]), 1 << (LOWER - 1)
    most = MOST >> LOWER

    def upper(rest: Floats, row: int) -> Floats:
        floor = np.clip(np.floor(rest[:, row] / (2 * middle)), -most - 1, most)
        return np.asarray(2 * middle * floor + middle)

    middles = round_compensated(exact, inner, upper)

    def whole(rest: Floats, row: int) -> Floats:
        return np.clip(np.rint(rest[:, row]), middles[row] - middle, middles[row] + middle - 1)

    return round_compensated(exact, inner, whole).astype(np.int64), steps


def is_nested(weights: Floats) -> bool:
    """Return whether rounding of the float weights [n, k] to INT8 would not change any weight.

    The scale of each output is the largest magnitude of its weights, divided by 127.
    """
    exact, _ = _in_steps(weights)
    return bool(np.abs(exact - np.rint(exact)).max() < _WHOLE)


def _in_steps(weights: Floats) -> tuple[Floats, Floats]:
    """Return weights [n, k] in steps, and the step of each output, [n]."""
    largest = np.abs(weights).max(axis=1)
    steps = np.where(largest > 0, largest, 1.0) / MOST
    return np.asarray(weights / steps[:, None]), steps


def planes(weight: Ints) -> tuple[Stored, ...]:
    """Return the bit planes of INT8 weights: the two highest bits, the next two, the lowest four.

    Each plane is a matrix of codes with a format that defines their values. A weight is the sum of
    the values of its three codes.
    """
    stored_planes, left = [], weight
    for bits, name in PLANES.items():
        form, size = FORMATS[name], 1 << (OPERAND_BITS - bits)
        values = (left // size) * size + size // 2 if bits < OPERAND_BITS else left
        codes = np.zeros_like(weight)
        for code, value in enumerate(form.values):
            codes[values == value] = code
        stored_planes.append(Stored(form, codes))
        left = left - values
    return tuple(stored_planes)
