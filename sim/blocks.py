"""Golden model of blocks of values that share an exponent: equation (22) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BITS = 4
"""Width of a mantissa (bits)."""
LEAST, MOST = 1, 4
"""Smallest and largest exponent; with the largest, every 8-bit value has a mantissa."""


def exponents(values: Ints) -> Ints:
    """Return the exponent [...] that each block of 8-bit values [..., count] shares.

    The exponent is the smallest, from 1 to 4, for which all mantissas ``value >> exponent`` of the
    block fit in 4 bits.
    """
    magnitude = np.where(values < 0, ~values, values).max(axis=-1)  # [...]
    counts = np.full(magnitude.shape, LEAST, np.int64)
    for exponent in range(LEAST, MOST):
        counts += magnitude >= 1 << BITS - 1 + exponent
    return counts


def mantissas(values: Ints, exponent: Ints) -> Ints:
    """Return ``values >> exponent``: the mantissas of blocks [..., count] with exponents [...]."""
    return values >> exponent[..., None]


def operands(mantissa: Ints, exponent: Ints) -> Ints:
    """Return the 8-bit numbers [..., count] that mantissas with shared exponents stand for.

    A number is ``(mantissa << exponent) + 2**(exponent - 1)``: the middle, rounded up, of all
    values with this ``mantissa`` [..., count]. ``exponent`` [...] has one exponent for each block
    of ``count`` mantissas.
    """
    return (2 * mantissa + 1) << exponent[..., None] - 1


def rounded(values: Ints, count: int) -> Ints:
    """Return rows of 8-bit numbers [n, columns], each rounded to a 4-bit mantissa and an exponent.

    Each ``count`` consecutive columns of a row share an exponent (:func:`exponents`). The result
    [n, columns] has the 8-bit numbers of :func:`operands`, which a matrix product takes instead of
    ``values``.
    """
    blocks = values.reshape(len(values), -1, count)
    exponent = exponents(blocks)  # [n, blocks]
    return operands(mantissas(blocks, exponent), exponent).reshape(values.shape)


def pack_mantissas(first: Ints, second: Ints, cols: int, above: int, scale_bits: int = 0) -> Ints:
    """Return tile words [n, cols] with 4-bit mantissas of two arrays [n, size] of 8-bit numbers.

    All elements of row i share an exponent e (:func:`exponents`). A word's low byte has the
    mantissa of ``first`` in its low half, that of ``second`` in its high half. From bit ``8 +
    scale_bits`` on, the word has ``above`` bits of e - 1, the lowest in column 0.
    """
    exponent = exponents(np.concatenate([first, second], axis=1))  # [n]
    halves = [mantissas(half, exponent) for half in (first, second)]
    row = np.zeros((len(first), cols), np.int64)
    row[:, : first.shape[1]] = (halves[1] << BITS) + (halves[0] & 15)
    parts = exponent[:, None] - LEAST >> above * np.arange(cols)  # [n, cols]
    return row + ((parts & (1 << above) - 1) << 8 + scale_bits)


def stored_exponents(words: Ints, above: int, scale_bits: int = 0) -> Ints:
    """Return the exponent [...] of each row of words [..., cols] of an array's tile, from 1 to 4.

    The words have the format of :func:`pack_mantissas`.
    """
    bits = (words + 128 >> 8 + scale_bits) & (1 << above) - 1
    parts = (bits << above * np.arange(words.shape[-1])) & MOST - LEAST
    return np.asarray(LEAST + parts.sum(axis=-1))
