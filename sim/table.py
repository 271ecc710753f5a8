"""Golden model of lookup tables for activation functions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import TABLE_ENTRIES


def lookup(table: NDArray[Any], x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the entries ``table[x + 128]`` of an activation table of 256 bytes.

    ``x`` are signed bytes of any shape.
    """
    entries = np.asarray(table, dtype=np.int64)  # [256]
    return np.asarray(entries[np.asarray(x, dtype=np.int64) + TABLE_ENTRIES // 2])
