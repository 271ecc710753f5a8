"""Golden model of values of which a few share an exponent: equation (22)."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BITS = 4
"""Bits of a mantissa."""
LEAST, MOST = 1, 4
"""Exponents that there are: with the largest every 8-bit value has a mantissa."""


def exponents(values: Ints) -> Ints:
    """Return the exponent of each block [...] of 8-bit values [..., count]."""
    magnitude = np.where(values < 0, ~values, values).max(axis=-1)  # [...]
    counts = np.full(magnitude.shape, LEAST, np.int64)
    for exponent in range(LEAST, MOST):
        counts += magnitude >= 1 << BITS - 1 + exponent
    return counts


def mantissas(values: Ints, exponent: Ints) -> Ints:
    """Return values [..., count] of blocks without the bits below their exponents [...]."""
    return values >> exponent[..., None]


def operands(mantissa: Ints, exponent: Ints) -> Ints:
    """Return what mantissas [..., count] stand for: the middle of what they leave open."""
    return (2 * mantissa + 1) << exponent[..., None] - 1


def rounded(values: Ints, count: int) -> Ints:
    """Return what is multiplied with of 8-bit rows [n, columns], ``count`` columns a block."""
    blocks = values.reshape(len(values), -1, count)
    exponent = exponents(blocks)  # [n, blocks]
    return operands(mantissas(blocks, exponent), exponent).reshape(values.shape)


def both(first: Ints, second: Ints, cols: int, above: int, scale_bits: int = 0) -> Ints:
    """Return rows of a slot [n, size] of two rows [n, size] of 8-bit values, each pair a block.

    The mantissas of the first are the low halves of the bytes. Exponents lie ``above`` bits to a
    column above its byte, and above ``scale_bits`` of a scale there, the lowest in column 0.
    A slot has ``cols`` columns: what is behind a row's end is 0 but for these bits.
    """
    exponent = exponents(np.concatenate([first, second], axis=1))  # [n]
    halves = [mantissas(half, exponent) for half in (first, second)]
    row = np.zeros((len(first), cols), np.int64)
    row[:, : first.shape[1]] = (halves[1] << BITS) + (halves[0] & 15)
    parts = exponent[:, None] - LEAST >> above * np.arange(cols)  # [n, cols]
    return row + ((parts & (1 << above) - 1) << 8 + scale_bits)


def kept(words: Ints, above: int, scale_bits: int = 0) -> Ints:
    """Return the exponents of the rows [...] of slots [..., cols]."""
    bits = (words + 128 >> 8 + scale_bits) & (1 << above) - 1
    parts = (bits << above * np.arange(words.shape[-1])) & MOST - LEAST
    return np.asarray(LEAST + parts.sum(axis=-1))
