"""Golden model of blocks of values that share an exponent: equation (22) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BITS = 4
"""Width of a mantissa (bits)."""
LEAST, MOST = 1, 4
"""Smallest and largest exponent; with the largest, every 8-bit value has a mantissa."""


def exponents(values: Ints) -> Ints:
    """Return the shared exponent [...] of each block of 8-bit values [..., count].

    The exponent is the smallest, from 1 to 4, with which all mantissas fit in 4 bits.
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
    """Return the 8-bit operands [..., count] that products use in place of mantissas and exponents.

    ``mantissa`` is [..., count], and ``exponent`` [...]. An operand is the middle of all 8-bit
    values that have this mantissa and exponent.
    """
    return (2 * mantissa + 1) << exponent[..., None] - 1


def rounded(values: Ints, count: int) -> Ints:
    """Return 8-bit rows [n, columns] rounded to 4-bit mantissas with shared exponents.

    Each ``count`` consecutive columns of a row share an exponent. The result [n, columns] has the
    8-bit values that products use instead of ``values``.
    """
    blocks = values.reshape(len(values), -1, count)
    exponent = exponents(blocks)  # [n, blocks]
    return operands(mantissas(blocks, exponent), exponent).reshape(values.shape)


def both(first: Ints, second: Ints, cols: int, above: int, scale_bits: int = 0) -> Ints:
    """Pack two arrays of 8-bit numbers as 4-bit mantissas into words [n, cols] of weight slots.

    A weight slot is on-chip storage for one tile of weights, with ``cols`` words in a row.
    ``first`` and ``second`` have shape [n, size]; size is at most ``cols``. Row i of ``first`` and
    row i of ``second`` share one exponent e from 1 to 4, by equation (22) of ``docs/formats.md``. A
    word consists of three fields, from the lowest bits on:

    - A byte with a mantissa of ``first`` in its low half and a mantissa of ``second`` in its high
      half. In columns from size on, the byte is 0.
    - ``scale_bits`` bits, all 0.
    - ``above`` bits of the 2-bit number e - 1. The word of column 0 has the lowest bits, the word
      of column 1 the next bits, and so on.
    """
    exponent = exponents(np.concatenate([first, second], axis=1))  # [n]
    halves = [mantissas(half, exponent) for half in (first, second)]
    row = np.zeros((len(first), cols), np.int64)
    row[:, : first.shape[1]] = (halves[1] << BITS) + (halves[0] & 15)
    parts = exponent[:, None] - LEAST >> above * np.arange(cols)  # [n, cols]
    return row + ((parts & (1 << above) - 1) << 8 + scale_bits)


def kept(words: Ints, above: int, scale_bits: int = 0) -> Ints:
    """Return the exponents [...] that :func:`both` has stored in the rows of ``words`` [..., cols].

    Each row has one exponent, which is divided among the row's words. ``above`` is the number of
    exponent bits in a word. Between the exponent bits and the word's low byte are ``scale_bits``
    other bits.
    """
    bits = (words + 128 >> 8 + scale_bits) & (1 << above) - 1
    parts = (bits << above * np.arange(words.shape[-1])) & MOST - LEAST
    return np.asarray(LEAST + parts.sum(axis=-1))
