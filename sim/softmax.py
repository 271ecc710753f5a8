"""Golden model of the softmax of rows of 16-bit scores: equation (3) of ``docs/numerics.md``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION, WEIGHT_FRACTION
from celosia.sim.exponential import octave_exponential
from celosia.sim.reciprocal import reciprocal

Ints = NDArray[np.int64]
LOWEST = -(1 << 15)
"""Maximum score of a row without any column."""


def softmax(q: NDArray[Any], mask: NDArray[Any] | None = None) -> Ints:
    """Return the probabilities of scores, in units of ``2**-24`` from 0 to ``2**24``.

    ``q`` [..., n] has INT16 scores: a score that is larger by 256 has twice the probability.
    Columns whose ``mask`` is false have probability 0. The result does not depend on the order of
    columns.
    """
    q = np.asarray(q, dtype=np.int64)  # [..., n]
    keep = np.ones_like(q, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    mantissa, shift = mantissas(q, keep, largest(q, keep))  # [..., n]
    total = fixed(mantissa, shift).sum(axis=-1, keepdims=True)  # [..., 1] Q.28
    return divide(mantissa, shift, *reciprocal(total))


def row_weights(q: NDArray[Any], mask: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return (weights, mantissa, right): exponentials of INT16 scores [..., n], and row factors.

    ``weights`` are ``2**((score - largest of row) / 256)`` in units of ``2**-24``, rounded down, or
    0 if ``mask`` is false. A weight times ``mantissa / 2**right`` [..., 1] is a probability. The
    mantissa has 17 bits; it is 0 if a row is masked.
    """
    q, keep = np.asarray(q, dtype=np.int64), np.asarray(mask, dtype=bool)  # [..., n]
    weights = fixed(*mantissas(q, keep, largest(q, keep)))  # [..., n] Q.28
    inverse, exponent = reciprocal(weights.sum(axis=-1, keepdims=True))
    right = np.where(inverse > 0, -exponent - WEIGHT_FRACTION, 0)
    return weights >> WEIGHT_FRACTION - PROBABILITY_FRACTION, inverse, right


def largest(q: Ints, keep: NDArray[np.bool_]) -> Ints:
    """Return the largest score of each row, [..., 1], among the columns whose ``keep`` is true.

    A row without such a column gives -32,768.
    """
    return np.asarray(np.where(keep, q, LOWEST).max(axis=-1, keepdims=True))


def mantissas(q: Ints, keep: NDArray[np.bool_], maximum: Ints) -> tuple[Ints, Ints]:
    """Return (mantissa, shift), each [..., n], of the exponentials ``2**((q - maximum) / 256)``.

    ``maximum`` [..., 1] is the largest score of each row. An exponential is the mantissa (Q1.16),
    shifted right by ``shift``; the mantissa is 0 where ``keep`` is false.
    """
    mantissa, shift = octave_exponential(np.where(keep, maximum - q, 0))  # [..., n]
    return np.where(keep, mantissa, 0), shift


def fixed(mantissa: Ints, shift: Ints) -> Ints:
    """Return exponentials of scores as fixed-point numbers in Q1.28.

    An exponential is ``mantissa`` (Q1.16) divided by ``2**shift``, rounded down.
    """
    return mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA) >> shift


def divide(mantissa: Ints, shift: Ints, inverse: Ints, exponent: Ints) -> Ints:
    """Return the softmax probabilities [..., n] of exponentials, in units of ``2**-24``.

    Results are rounded to nearest, ties up. An exponential is ``mantissa * 2**-(16 + shift)``. The
    sum of a row's exponentials, in units of ``2**-28``, has the reciprocal ``inverse *
    2**exponent`` [..., 1]; ``inverse`` is 0 for a sum of 0.
    """
    # p = mantissa * 2**-(16 + shift) * inverse * 2**(exponent + 28), rounded to nearest, up at ties
    scale = OCTAVE_MANTISSA - WEIGHT_FRACTION - PROBABILITY_FRACTION - exponent  # at least 8
    right = np.where(inverse > 0, scale, 8) + shift  # [..., n]
    return np.asarray(((mantissa * inverse >> (right - 1)) + 1) >> 1)
