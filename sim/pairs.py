"""Golden model of keys and values of which upper bits are kept: equation (21)."""

import numpy as np
from numpy.typing import NDArray

from celosia.sim.matmul import multiply

Ints = NDArray[np.int64]
BITS = 8
"""Bits of a key or value before some are left out."""
HALF = 4
"""Bits of those that a slot's byte holds two of."""


def upper(x: Ints, bits: int) -> Ints:
    """Return the upper ``bits`` of 8-bit elements, signed."""
    return x >> BITS - bits


def lower(x: Ints, bits: int) -> Ints:
    """Return the others of 8-bit elements, less half of their range."""
    left = BITS - bits
    return (x & (1 << left) - 1) - (1 << left >> 1)


def both(first: Ints, second: Ints) -> Ints:
    """Return the upper four bits of two arrays of 8-bit elements as bytes, the first's low."""
    return (upper(second, HALF) << HALF) + (upper(first, HALF) & 15)


def both_lower(first: Ints, second: Ints) -> Ints:
    """Return the lower four bits of two arrays of 8-bit elements as bytes, the first's low."""
    return (lower(second, HALF) << HALF) + (lower(first, HALF) & 15)


def score_sums(queries: Ints, keys: Ints, bits: int, whole: int) -> Ints:
    """Return the sums [m, n] over queries [m, k] and keys [n, k] of which upper bits are kept.

    Of the first ``whole`` columns, if any, the lower bits are kept, too; of all, keys are as they
    were.
    """
    if whole == keys.shape[1]:
        return multiply(queries, keys.T)
    sums = multiply(queries, upper(keys, bits).T)
    if whole:
        low = multiply(queries[:, :whole], lower(keys[:, :whole], bits).T)
        sums = (sums << BITS - bits) + low
    return sums
