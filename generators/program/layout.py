"""Layout of arrays in external memory and in the scratchpad."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.vector_config import PARAM_BYTES

Bytes = NDArray[np.uint8]


def rows_image(data: Bytes, config: Config) -> tuple[bytes, int]:
    """Return rows [m, bytes] as bytes of external memory, and the row stride (bytes).

    Each row is padded with zeros to whole words of external memory.
    """
    stride = -(-data.shape[1] // config.mem_bytes) * config.mem_bytes
    padded = np.zeros((data.shape[0], stride), np.uint8)
    padded[:, : data.shape[1]] = data
    return padded.tobytes(), stride


def aligned(count: int, config: Config) -> int:
    """Return the stride of scratchpad rows that have ``count`` bytes each (bytes).

    It is ``count``, rounded up to a multiple of the scratchpad's alignment.
    """
    return -(-count // config.scratchpad.align) * config.scratchpad.align


def aligned_rows(data: Bytes, config: Config) -> Bytes:
    """Return rows [m, bytes], each padded with zeros to the alignment of the scratchpad."""
    missing = aligned(data.shape[1], config) - data.shape[1]
    return np.pad(data, ((0, 0), (0, missing))) if missing else data


def element_rows(values: NDArray[np.int64], dtype: str) -> Bytes:
    """Return the bytes [m, bytes] of integers [m, n] converted to the NumPy type ``dtype``."""
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(len(values), -1)


def param_words(
    bias: NDArray[np.int64],
    multiplier: NDArray[np.int64],
    shift: NDArray[np.int64],
    config: Config,
    *,
    by_tile: bool,
) -> Bytes:
    """Return requantization parameters of n columns as scratchpad words, [words, bytes].

    With L vector lanes, a word has the parameters of L columns: column j is in lane j % L of word j
    // L. If ``by_tile`` is true, each tile (as many columns as the array has) starts a new word, as
    DRAIN reads the parameters.
    """
    n, lanes = len(bias), config.vector.lanes
    columns = np.arange(n)
    if by_tile:
        inside = columns % config.array.cols
        word = columns // config.array.cols * config.lane_groups + inside // lanes
        lane = inside % lanes
    else:
        word, lane = np.divmod(columns, lanes)
    words = np.zeros((int(word[-1]) + 1, config.word_bytes), np.uint8)
    entry = np.zeros((n, PARAM_BYTES), np.uint8)
    entry[:, 0:4] = bias.astype("<i4").view(np.uint8).reshape(n, 4)
    entry[:, 4:8] = multiplier.astype("<i4").view(np.uint8).reshape(n, 4)
    entry[:, 8] = shift.astype(np.int8).view(np.uint8)
    words[word[:, None], lane[:, None] * PARAM_BYTES + np.arange(PARAM_BYTES)] = entry
    return words
