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
    """Return bytes that hold the upper four bits of two elements each.

    Weight slots (the array's storage for tiles of weights, keys or values) have such bytes.
    ``first`` and ``second`` are arrays of 8-bit elements. The low half of a byte has the upper four
    bits of an element of ``first``. The high half has the upper four bits of the element of
    ``second`` at the same index.
    """
    return (upper(second, HALF) << HALF) + (upper(first, HALF) & 15)


def both_lower(first: Ints, second: Ints) -> Ints:
    """Return bytes that hold the lower four bits of two elements each.

    Weight slots (the array's storage for tiles of weights, keys or values) have such bytes.
    ``first`` and ``second`` are arrays of 8-bit elements. The low half of a byte is for an element
    of ``first``, and the high half for the element of ``second`` at the same index. Each half is
    the signed number ``element % 16 - 8``, from -8 to 7, in two's complement. For example, the
    elements ``0x2F`` and ``0x30`` have the lower bits 15 and 0. The halves are 7 and -8, so the
    byte is ``0x87``, which is -121.
    """
    return (lower(second, HALF) << HALF) + (lower(first, HALF) & 15)


def score_sums(queries: Ints, keys: Ints, bits: int, whole: int) -> Ints:
    """Return attention scores [m, n] of queries [m, k] with keys [n, k] in the packed KV cache.

    This cache stores all 8 bits of the first ``whole`` elements of each key, and only the upper
    ``bits`` bits of the other elements. The scores are exact if ``whole`` is k, otherwise
    approximate. They are in units of 1 or, if ``whole`` is 0, in units of ``2**(8 - bits)``.
    """
    if whole == keys.shape[1]:
        return multiply(queries, keys.T)
    sums = multiply(queries, upper(keys, bits).T)
    if whole:
        low = multiply(queries[:, :whole], lower(keys[:, :whole], bits).T)
        sums = (sums << BITS - bits) + low
    return sums
