"""Golden model of powers of two with a negative exponent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import OCTAVE_FRACTION, OCTAVE_LIMIT, octave_table

_TABLE = octave_table()


def octave_exponential(distance: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (mantissa, shift): ``2**(-distance / 256)`` is about ``mantissa * 2**(-16-shift)``.

    ``distance`` has integers from 0 to 65,535. The mantissa is from ``2**15`` to ``2**16``, or 0 if
    the distance is at least 8192. The shift is ``distance // 256``, modulo 32.
    """
    distance = np.asarray(distance, dtype=np.int64)
    octaves = distance >> OCTAVE_FRACTION
    mantissa = _TABLE[distance & ((1 << OCTAVE_FRACTION) - 1)]
    return np.where(octaves < OCTAVE_LIMIT, mantissa, 0), octaves % OCTAVE_LIMIT
