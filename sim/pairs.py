"""Golden model of attention keys and values in 4 bits: equation (21) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

from celosia.sim.matmul import multiply

Ints = NDArray[np.int64]
BITS = 8
"""Width of a key or value before bits are dropped (bits)."""
HALF = 4
"""Width of each of the two elements in a slot's byte (bits)."""


def upper(x: Ints, bits: int) -> Ints:
    """Return the upper ``bits`` bits of 8-bit elements as signed integers."""
    return x >> BITS - bits


def lower(x: Ints, bits: int) -> Ints:
    """Return the low ``8 - bits`` bits of 8-bit elements, as signed integers.

    ``bits`` is the number of upper bits, which :func:`upper` returns. Half of the range of the low
    bits is subtracted from them. For example, if ``bits`` is 4, the low bits 0 to 15 become -8 to
    7.
    """
    left = BITS - bits
    return (x & (1 << left) - 1) - (1 << left >> 1)


def both(first: Ints, second: Ints) -> Ints:
    """Return bytes with the upper four bits of 8-bit elements: ``first`` in the low half of a byte.

    The high half has the element of ``second`` at the same index.
    """
    return (upper(second, HALF) << HALF) + (upper(first, HALF) & 15)


def both_lower(first: Ints, second: Ints) -> Ints:
    """Return bytes that pack the lower four bits of two arrays of 8-bit elements.

    A byte's low half has ``element % 16 - 8``, in two's complement, of an element of ``first``. Its
    high half has the same of the element of ``second`` at the same index.
    """
    return (lower(second, HALF) << HALF) + (lower(first, HALF) & 15)


def score_sums(queries: Ints, keys: Ints, bits: int, whole: int) -> Ints:
    """Return attention scores [m, n]: products of queries [m, k] and keys [n, k] with fewer bits.

    The first ``whole`` elements of each key have 8 bits. Of the other elements, only the upper
    ``bits`` bits are used. If ``whole`` is 0, scores are in units of ``2**(8 - bits)``. See
    equation (21) of ``docs/formats.md``.
    """
    if whole == keys.shape[1]:
        return multiply(queries, keys.T)
    sums = multiply(queries, upper(keys, bits).T)
    if whole:
        low = multiply(queries[:, :whole], lower(keys[:, :whole], bits).T)
        sums = (sums << BITS - bits) + low
    return sums
