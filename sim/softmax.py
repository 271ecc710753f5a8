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

    ``q`` holds INT16 scores ``[..., n]`` in units of 1/256 octave: 256 units double a probability.
    ``mask`` has the shape of ``q``, and is true everywhere by default. Columns whose ``mask`` is
    false have probability 0. If the ``mask`` of a whole row is false, all probabilities of the row
    are 0. The result does not depend on the order of columns.
    """
    q = np.asarray(q, dtype=np.int64)  # [..., n]
    keep = np.ones_like(q, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    mantissa, shift = mantissas(q, keep, largest(q, keep))  # [..., n]
    total = fixed(mantissa, shift).sum(axis=-1, keepdims=True)  # [..., 1] Q.28
    return divide(mantissa, shift, *reciprocal(total))


def row_weights(q: NDArray[Any], mask: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return the exponentials of scores, and the reciprocal of each row's sum of exponentials.

    ``q`` [..., n] has INT16 scores. The exponential of a score is ``2**((q - largest) / 256)``,
    with the largest score of the row. The exponential is 0 in columns whose ``mask`` [..., n] is
    false.

    The result is the tuple ``(weights, mantissa, right)``:

    - ``weights`` [..., n] has the exponentials in units of ``2**-24``, rounded down. The
      exponential of the largest score is 1, which is ``2**24`` units.
    - ``mantissa`` [..., 1] and ``right`` [..., 1] have the factor of each row,
      ``mantissa / 2**right``. The factor is the reciprocal of the sum of the row's exponentials. An
      exponential times the factor is a softmax probability. ``mantissa`` has 17 bits, and ``right``
      is from 0 to 31. If the ``mask`` of the whole row is false, ``mantissa`` is 0.

    Equation (23) of ``docs/numerics.md`` has a use of the factors.
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

    ``q`` [..., n] are scores, in units of 1/256 octave, and ``maximum`` [..., 1] is the largest
    score of each row. An exponential is its mantissa (Q1.16), shifted right by ``shift`` bits.
    ``keep`` [..., n] is false for columns that the softmax leaves out; their mantissa is 0.
    """
    mantissa, shift = octave_exponential(np.where(keep, maximum - q, 0))  # [..., n]
    return np.where(keep, mantissa, 0), shift


def fixed(mantissa: Ints, shift: Ints) -> Ints:
    """Return exponentials of scores as fixed-point numbers in Q1.28.

    An exponential is ``mantissa`` (Q1.16) divided by ``2**shift``, rounded down.
    """
    return mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA) >> shift


def divide(mantissa: Ints, shift: Ints, inverse: Ints, exponent: Ints) -> Ints:
    """Return softmax probabilities, [..., n]: exponentials divided by the sum of their row.

    A probability is an integer in units of ``2**-24``, rounded to nearest, ties up. The arguments
    are integers, too:

    - ``mantissa`` and ``shift`` [..., n]: an exponential is ``mantissa * 2**-(16 + shift)``.
    - ``inverse`` and ``exponent`` [..., 1]: ``inverse * 2**exponent`` is approximately
      ``1 / total``. ``total`` is the sum of the row's exponentials as an integer number of units of
      ``2**-28``. For example, if the sum is 3, ``total`` is ``3 * 2**28``. If ``total`` is 0,
      ``inverse`` must be 0; the probabilities are then 0.
    """
    # p = mantissa * 2**-(16 + shift) * inverse * 2**(exponent + 28), rounded to nearest, up at ties
    scale = OCTAVE_MANTISSA - WEIGHT_FRACTION - PROBABILITY_FRACTION - exponent  # at least 8
    right = np.where(inverse > 0, scale, 8) + shift  # [..., n]
    return np.asarray(((mantissa * inverse >> (right - 1)) + 1) >> 1)
