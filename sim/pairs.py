"""Golden model of keys and values stored in 4 bits: equation (21) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

from celosia.sim.matmul import multiply

Ints = NDArray[np.int64]
BITS = 8
"""Width of a key or value before bits are dropped (bits)."""
HALF = 4
"""Width of each of the two elements in a slot's byte (bits)."""


def upper(x: Ints, bits: int) -> Ints:
    """Return the upper ``bits`` of 8-bit elements as signed integers."""
    return x >> BITS - bits


def lower(x: Ints, bits: int) -> Ints:
    """Return the low bits of 8-bit elements, minus half of the range of these bits.

    The elements' upper ``bits`` bits are left out, so the result is signed and has ``8 - bits``
    bits.
    """
    left = BITS - bits
    return (x & (1 << left) - 1) - (1 << left >> 1)


def both(first: Ints, second: Ints) -> Ints:
    """Return bytes of the upper four bits of two 8-bit arrays, ``first`` in the low half."""
    return (upper(second, HALF) << HALF) + (upper(first, HALF) & 15)


def both_lower(first: Ints, second: Ints) -> Ints:
    """Return bytes of the lower four bits of two 8-bit arrays, ``first`` in the low half."""
    return (lower(second, HALF) << HALF) + (lower(first, HALF) & 15)


def score_sums(queries: Ints, keys: Ints, bits: int, whole: int) -> Ints:
    """Return attention scores [m, n] of queries [m, k] with keys [n, k] in the packed KV cache.

    Only the upper ``bits`` bits of keys are stored, but all 8 bits in the first ``whole`` columns.
    If ``whole`` is k, scores are exact.
    """
    if whole == keys.shape[1]:
        return multiply(queries, keys.T)
    sums = multiply(queries, upper(keys, bits).T)
    if whole:
        low = multiply(queries[:, :whole], lower(keys[:, :whole], bits).T)
        sums = (sums << BITS - bits) + low
    return sums
