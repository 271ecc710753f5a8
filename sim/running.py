"""Golden model of running rows, softmax over chunks (equation 8 of docs/numerics.md)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import ProgramError
from arch.functions import KEEP_FRACTION, OCTAVE_MANTISSA, RUNNING_WIDTH, WEIGHT_FRACTION
from arch.polynomial import MANTISSA_WIDTH
from sim.exponential import octave_exponential
from sim.reciprocal import reciprocal
from sim.requantize import MIN_SHIFT
from sim.softmax import LOWEST, Ints, divide, fixed, largest, mantissas

_ONE = reciprocal(np.array(1 << WEIGHT_FRACTION))
"""Reciprocal of a sum of 1: weights divided by it stay what they are."""
_TOP_WIDTH = MANTISSA_WIDTH + 1
"""Bits of the sum so far that count for its share, from the whole sum's leading one on."""


class RunningRows:
    """The state of each row of a softmax, kept from chunk to chunk.

    ``maximum`` is the largest score so far, -32768 at first, and ``total`` the sum of the weights
    relative to it, in Q.28. For the output, ``inverse * 2**(-16 - halvings)`` is one over that
    sum, and ``keep``, in Q1.16, the share of the sum that was there before the last chunk. All
    but the maximum are 0 at first.
    """

    def __init__(self, rows: int):
        self.maximum: Ints = np.full(rows, LOWEST, np.int64)
        self.total: Ints = np.zeros(rows, np.int64)
        self.inverse: Ints = np.zeros(rows, np.int64)
        self.halvings: Ints = np.zeros(rows, np.int64)
        self.keep: Ints = np.zeros(rows, np.int64)

    def weights(
        self, row: int, q: NDArray[Any], mask: NDArray[Any] | None = None, *, first: bool
    ) -> Ints:
        """Return the weights in Q0.24 of a chunk of scores, and let the running rows take it in.

        ``q`` holds int16 scores ``[m, n]`` in units of 1/256 octave, ``mask`` (the same shape)
        whether a column takes part; row i goes on from running row ``row + i``, or begins it with
        ``first``. Weights are relative to the largest score so far, so from 0 to ``2**24``. A
        column that does not take part gives 0; a row where none does stays as it is.

        Raises :class:`ProgramError` where a sum reaches ``2**20``.
        """
        q = np.asarray(q, dtype=np.int64)  # [m, n]
        keep = np.ones_like(q, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        rows = slice(row, row + len(q))
        before = np.full(len(q), LOWEST) if first else self.maximum[rows]  # [m]
        total = np.zeros(len(q), np.int64) if first else self.total[rows]  # [m] Q.28
        maximum = np.maximum(before, largest(q, keep)[:, 0])  # [m]
        mantissa, shift = mantissas(q, keep, maximum[:, None])  # [m, n]
        added = fixed(mantissa, shift).sum(axis=-1)  # [m] Q.28
        carried = relative(total, maximum - before)  # [m] Q.28
        total = carried + added
        if total.max() >= 1 << RUNNING_WIDTH:
            raise ProgramError(
                f"Running row {row + int(total.argmax())} sums weights to {total.max()}, which "
                f"{RUNNING_WIDTH} bits do not hold"
            )
        inverse, exponent = reciprocal(total)
        halvings = np.where(inverse > 0, _ONE[1] - exponent, 0)
        top = carried >> (halvings + WEIGHT_FRACTION - _TOP_WIDTH)  # [m]
        share = (top * inverse + (1 << (_TOP_WIDTH - 1))) >> _TOP_WIDTH
        share = np.where(added == 0, 1 << KEEP_FRACTION, share)
        self.maximum[rows], self.total[rows] = maximum, total
        self.inverse[rows], self.halvings[rows] = inverse, halvings
        self.keep[rows] = 0 if first else share
        return divide(mantissa, shift, *_ONE)

    def scale(self, row: int, m: int, multiplier: int, shift: int) -> tuple[Ints, Ints]:
        """Return multipliers and shifts [m] of equation (1) that divide by the rows' sums too.

        Where a sum is 0, or the shift falls below -31, both are 0.
        """
        inverse = self.inverse[row : row + m]
        divided = (multiplier * inverse + (1 << (MANTISSA_WIDTH - 1))) >> MANTISSA_WIDTH
        shifts = shift + 1 - self.halvings[row : row + m]
        none = (inverse == 0) | (shifts < MIN_SHIFT)
        return np.where(none, 0, divided), np.where(none, 0, shifts)

    def kept(self, row: int, residual: NDArray[Any]) -> Ints:
        """Return the share of residuals [m, n] that running rows keep, to nearest, up at ties."""
        keep = self.keep[row : row + len(residual), None]  # [m, 1]
        half = 1 << (KEEP_FRACTION - 1)
        return np.asarray((np.asarray(residual, dtype=np.int64) * keep + half) >> KEEP_FRACTION)


def relative(total: Ints, distance: Ints) -> Ints:
    """Return sums of weights relative to a maximum that is larger by a distance, bits dropped."""
    mantissa, shift = octave_exponential(distance)
    # In two halves: the product may have 65 bits.
    low = (total % (1 << OCTAVE_MANTISSA)) * mantissa >> OCTAVE_MANTISSA
    return np.asarray((total >> OCTAVE_MANTISSA) * mantissa + low >> shift)
