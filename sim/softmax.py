"""Golden model of the softmax of rows of 16-bit scores (equation 3 of docs/numerics.md)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION, WEIGHT_FRACTION
from sim.exponential import octave_exponential
from sim.reciprocal import reciprocal


def softmax(q: NDArray[Any], mask: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return probabilities in Q0.24, from 0 to ``2**24``, of scores in units of 1/256 octave.

    ``q`` holds int16 scores ``[..., n]``, ``mask`` (the same shape) whether a column takes part;
    without it all do. A column that does not, and every column of a row where none does, gives 0.
    The result does not depend on the order of columns.
    """
    q = np.asarray(q, dtype=np.int64)  # [..., n]
    keep = np.ones_like(q, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    largest = np.where(keep, q, -(1 << 15)).max(axis=-1, keepdims=True)  # [..., 1]
    mantissa, shift = octave_exponential(np.where(keep, largest - q, 0))  # [..., n] Q1.16
    mantissa = np.where(keep, mantissa, 0)
    weight = mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA) >> shift  # [..., n] Q1.28
    inverse, exponent = reciprocal(weight.sum(axis=-1, keepdims=True))  # [..., 1]
    # p = mantissa * 2**-(16 + shift) * inverse * 2**(exponent + 28), rounded to nearest, up at ties
    scale = OCTAVE_MANTISSA - WEIGHT_FRACTION - PROBABILITY_FRACTION - exponent  # at least 8
    right = np.where(inverse > 0, scale, 8) + shift  # [..., n]
    return np.asarray(((mantissa * inverse >> (right - 1)) + 1) >> 1)
