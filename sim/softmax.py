"""Golden model of the softmax of rows of 16-bit scores (equation 3 of docs/numerics.md)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION, WEIGHT_FRACTION
from celosia.sim.exponential import octave_exponential
from celosia.sim.reciprocal import reciprocal

Ints = NDArray[np.int64]
LOWEST = -(1 << 15)
"""Largest score of a row without any column."""


def softmax(q: NDArray[Any], mask: NDArray[Any] | None = None) -> Ints:
    """Return probabilities in Q0.24, from 0 to ``2**24``, of scores in units of 1/256 octave.

    ``q`` holds int16 scores ``[..., n]``, ``mask`` (the same shape) whether a column takes part;
    without it all do. A column that does not, and every column of a row where none does, gives 0.
    The result does not depend on the order of columns.
    """
    q = np.asarray(q, dtype=np.int64)  # [..., n]
    keep = np.ones_like(q, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    mantissa, shift = mantissas(q, keep, largest(q, keep))  # [..., n]
    total = fixed(mantissa, shift).sum(axis=-1, keepdims=True)  # [..., 1] Q.28
    return divide(mantissa, shift, *reciprocal(total))


def row_weights(q: NDArray[Any], mask: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return weights in Q0.24, of which a row's largest is 1, and what makes them probabilities.

    Arguments are those of :func:`softmax`. A row's factor is ``mantissa / 2**right`` with
    ``mantissa`` [..., 1] of 17 bits, 0 of a row where no column takes part, and ``right`` [..., 1]
    from 0 to 31, equation (23): the reciprocal of the weights' sum.
    """
    q, keep = np.asarray(q, dtype=np.int64), np.asarray(mask, dtype=bool)  # [..., n]
    weights = fixed(*mantissas(q, keep, largest(q, keep)))  # [..., n] Q.28
    inverse, exponent = reciprocal(weights.sum(axis=-1, keepdims=True))
    right = np.where(inverse > 0, -exponent - WEIGHT_FRACTION, 0)
    return weights >> WEIGHT_FRACTION - PROBABILITY_FRACTION, inverse, right


def largest(q: Ints, keep: NDArray[np.bool_]) -> Ints:
    """Return the largest score ``[..., 1]`` of the columns that take part."""
    return np.asarray(np.where(keep, q, LOWEST).max(axis=-1, keepdims=True))


def mantissas(q: Ints, keep: NDArray[np.bool_], maximum: Ints) -> tuple[Ints, Ints]:
    """Return the mantissas in Q1.16 and the shifts of the weights relative to a maximum."""
    mantissa, shift = octave_exponential(np.where(keep, maximum - q, 0))  # [..., n]
    return np.where(keep, mantissa, 0), shift


def fixed(mantissa: Ints, shift: Ints) -> Ints:
    """Return weights in Q1.28, further bits dropped."""
    return mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA) >> shift


def divide(mantissa: Ints, shift: Ints, inverse: Ints, exponent: Ints) -> Ints:
    """Return weights by their sum in Q0.24, of which the reciprocal is given."""
    # p = mantissa * 2**-(16 + shift) * inverse * 2**(exponent + 28), rounded to nearest, up at ties
    scale = OCTAVE_MANTISSA - WEIGHT_FRACTION - PROBABILITY_FRACTION - exponent  # at least 8
    right = np.where(inverse > 0, scale, 8) + shift  # [..., n]
    return np.asarray(((mantissa * inverse >> (right - 1)) + 1) >> 1)
