"""Golden model of lookup tables for activation functions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.functions import TABLE_ENTRIES


def lookup(table: NDArray[Any], x: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``table[x + 128]`` for signed bytes ``x`` of any shape; ``table`` has 256 entries."""
    entries = np.asarray(table, dtype=np.int64)  # [256]
    return np.asarray(entries[np.asarray(x, dtype=np.int64) + TABLE_ENTRIES // 2])
