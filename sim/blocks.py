"""Golden model of blocks of values that share an exponent: equation (22) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BITS = 4
"""Width of a mantissa (bits)."""
LEAST, MOST = 1, 4
"""Smallest and largest exponent; with the largest, every 8-bit value has a mantissa."""


def exponents(values: Ints) -> Ints:
    """Return the exponent that each block of 8-bit values shares.

    ``values`` has shape [..., count]. Its last axis is one block, so the result has shape [...]. A
    value's mantissa is the value shifted right by the block's exponent (:func:`mantissas`). The
    exponent is the smallest, from 1 to 4, with which all mantissas of the block fit in 4 bits.
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
    """Return 8-bit numbers [..., count] that approximate the values with the given mantissas.

    ``mantissa`` [..., count] has blocks of ``count`` mantissas, and ``exponent`` [...] has the
    exponent of each block. The mantissa of a value is ``value >> exponent``, so several values have
    the same mantissa. The result has the middle of these values, rounded up:
    ``(mantissa << exponent) + 2**(exponent - 1)``. For example, if the exponent is 2, the values 12
    to 15 have the mantissa 3, and the result is 14. A matrix product multiplies by the result.
    """
    return (2 * mantissa + 1) << exponent[..., None] - 1


def rounded(values: Ints, count: int) -> Ints:
    """Return the rows ``values`` of 8-bit numbers [n, columns], rounded to 4-bit mantissas.

    Each ``count`` consecutive columns of a row share an exponent. The result [n, columns] has 8-bit
    operands (:func:`operands`): a matrix product multiplies by these instead of ``values``.
    """
    blocks = values.reshape(len(values), -1, count)
    exponent = exponents(blocks)  # [n, blocks]
    return operands(mantissas(blocks, exponent), exponent).reshape(values.shape)


def pack_mantissas(first: Ints, second: Ints, cols: int, above: int, scale_bits: int = 0) -> Ints:
    """Pack two arrays of 8-bit numbers as 4-bit mantissas into words of weight slots, [n, cols].

    A weight slot is on-chip storage for one tile of weights: rows of ``cols`` words. ``first`` and
    ``second`` have shape [n, size], and size is at most ``cols``. Row i of ``first`` and row i of
    ``second`` share one exponent e, from 1 to 4 (:func:`exponents`). The mantissa of a number is
    ``number >> e``, from -8 to 7.

    A word has three fields, from the lowest bits on:

    - 8 bits: the mantissa of ``first`` in the low four bits, and the mantissa of ``second`` in the
      high four bits. In columns from size on, they are 0.
    - ``scale_bits`` bits, which the machine uses for scales of other weights. Here they are 0.
    - ``above`` bits (1 or 2) for the exponent. If ``above`` is 2, the word in column 0 has e - 1.
      If ``above`` is 1, the word in column 0 has the lower bit of e - 1, and the word in column 1
      the upper bit. In all other words they are 0.

    A word is the sum of its fields at these positions; the 8 bits count as a signed number.
    ``above`` and ``scale_bits`` are properties of the machine.
    """
    exponent = exponents(np.concatenate([first, second], axis=1))  # [n]
    halves = [mantissas(half, exponent) for half in (first, second)]
    row = np.zeros((len(first), cols), np.int64)
    row[:, : first.shape[1]] = (halves[1] << BITS) + (halves[0] & 15)
    parts = exponent[:, None] - LEAST >> above * np.arange(cols)  # [n, cols]
    return row + ((parts & (1 << above) - 1) << 8 + scale_bits)


def stored_exponents(words: Ints, above: int, scale_bits: int = 0) -> Ints:
    """Return the exponent of each row of a weight slot, from the words of the row.

    ``words`` has shape [..., cols], and the result has shape [...]. A weight slot is on-chip
    storage for one tile of weights. The ``cols`` words of a row store mantissas of 4 bits that
    share one exponent e, which is from 1 to 4. A word has three fields, from the lowest bits on:

    - 8 bits: two mantissas.
    - ``scale_bits`` bits, which this function ignores.
    - ``above`` bits for the exponent. If ``above`` is 2, the word in column 0 has e - 1. If
      ``above`` is 1, the word in column 0 has the lower bit of e - 1, and the word in column 1 has
      the upper bit.

    A word is the sum of its fields at these positions; the 8 bits count as a signed number.
    """
    bits = (words + 128 >> 8 + scale_bits) & (1 << above) - 1
    parts = (bits << above * np.arange(words.shape[-1])) & MOST - LEAST
    return np.asarray(LEAST + parts.sum(axis=-1))
