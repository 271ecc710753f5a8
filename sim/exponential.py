"""Golden model of powers of two with a negative exponent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import OCTAVE_FRACTION, OCTAVE_LIMIT, octave_table

_TABLE = octave_table()


def octave_exponential(distance: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (mantissa, shift): ``2**(-distance / 256)`` is about ``mantissa * 2**(-16-shift)``.

    ``distance`` is an array of any shape, with integers from 0 to 65,535. An octave is a distance
    of 256. If the distance is less than 32 octaves, the mantissa is a value of
    :func:`celosia.arch.functions.octave_table`, from ``2**15`` to ``2**16``. Otherwise it is 0. The
    shift is the number of whole octaves, modulo 32.
    """
    distance = np.asarray(distance, dtype=np.int64)
    octaves = distance >> OCTAVE_FRACTION
    mantissa = _TABLE[distance & ((1 << OCTAVE_FRACTION) - 1)]
    return np.where(octaves < OCTAVE_LIMIT, mantissa, 0), octaves % OCTAVE_LIMIT
