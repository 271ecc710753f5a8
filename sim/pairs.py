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
    """Return bytes with the lower four bits of 8-bit elements: ``first`` in the low half of a byte.

    The high half has the element of ``second`` at the same index. A half is ``element % 16 - 8`` in
    two's complement.
    """
    return (lower(second, HALF) << HALF) + (lower(first, HALF) & 15)


def score_sums(queries: Ints, keys: Ints, bits: int, whole: int) -> Ints:
    """Return attention scores [m, n] of queries [m, k] with keys [n, k] in the packed KV cache.

    The first ``whole`` elements of a key have 8 bits, the others only their upper ``bits`` bits.
    Scores are in units of 1, or of ``2**(8 - bits)`` if ``whole`` is 0.
    """
    if whole == keys.shape[1]:
        return multiply(queries, keys.T)
    sums = multiply(queries, upper(keys, bits).T)
    if whole:
        low = multiply(queries[:, :whole], lower(keys[:, :whole], bits).T)
        sums = (sums << BITS - bits) + low
    return sums
