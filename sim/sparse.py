"""The compressed form of a sparse weight matrix, its product with a vector, and how long it takes.

A matrix of ``n`` rows and ``k`` columns is compressed into beats. A beat stands for the nonzero
weights inside a window of ``window`` columns of one row: ``base``, the window's first column, a
``bitmap`` with a 1 for each of its nonzero weights, and these weights, packed, at most ``values``
of them. A window starts at the first nonzero weight that no earlier beat holds, wherever that is,
so runs of zeros between windows take no beat. A row of zeros is one beat without weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arch.errors import InputError

LATENCY = 4
"""Cycles from a product's turn in a lane until the lane's sum can be merged."""


@dataclass(frozen=True, kw_only=True)
class Beats:
    """A compressed matrix, one entry of each array per beat."""

    base: NDArray[np.int64]  # (beats,) first column of the window; 0 without weights
    count: NDArray[np.int64]  # (beats,) number of weights, from 0 to values
    bitmap: NDArray[np.int64]  # (beats, window) 1 where column base + i has a weight
    values: NDArray[np.int64]  # (beats, values) the weights in column order, then zeros
    row_last: NDArray[np.int64]  # (beats,) 1 at the last beat of a row
    matrix_last: NDArray[np.int64]  # (beats,) 1 at the last beat of the matrix


def compress(w: ArrayLike, *, window: int, values: int) -> Beats:
    """Return the beats of a matrix of integers, (n, k), row by row from the left.

    Raises :class:`InputError` where the matrix is none or has no element, or where a window has no
    column or a beat no room for a weight.
    """
    matrix = np.asarray(w, dtype=np.int64)
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"A weight matrix must have rows and columns, not shape {matrix.shape}")
    for name, size in (("window", window), ("values", values)):
        if size < 1:
            raise InputError(f"Beat {name} must be at least 1, not {size}")

    bases, columns, row_last = [], [], []  # columns: of each beat, relative to its base
    for row in matrix:
        rest = np.flatnonzero(row)
        while True:
            base = int(rest[0]) if rest.size else 0
            taken = rest[:values][rest[:values] < base + window]
            rest = rest[taken.size :]
            bases.append(base)
            columns.append(taken - base)
            row_last.append(not rest.size)
            if not rest.size:
                break

    beats = len(bases)
    result = Beats(
        base=np.array(bases, dtype=np.int64),
        count=np.array([c.size for c in columns], dtype=np.int64),
        bitmap=np.zeros((beats, window), dtype=np.int64),
        values=np.zeros((beats, values), dtype=np.int64),
        row_last=np.array(row_last, dtype=np.int64),
        matrix_last=np.array([0] * (beats - 1) + [1], dtype=np.int64),
    )
    rows = np.cumsum(result.row_last) - result.row_last  # (beats,) the row of each beat
    for beat, relative in enumerate(columns):
        result.bitmap[beat, relative] = 1
        result.values[beat, : relative.size] = matrix[rows[beat], bases[beat] + relative]
    return result


def decompress(beats: Beats, k: int) -> NDArray[np.int64]:
    """Return the matrix, (n, k), that some beats stand for."""
    matrix = np.zeros((int(beats.row_last.sum()), k), dtype=np.int64)
    rows = np.cumsum(beats.row_last) - beats.row_last
    for beat, row in enumerate(rows):
        columns = beats.base[beat] + np.flatnonzero(beats.bitmap[beat])
        matrix[row, columns] = beats.values[beat, : beats.count[beat]]
    return matrix


def multiply(beats: Beats, x: ArrayLike) -> NDArray[np.int64]:
    """Return the matrix times a vector of integers, (k,), as exact sums, (n,)."""
    vector = np.asarray(x, dtype=np.int64)
    return decompress(beats, vector.size) @ vector


def count_cycles(counts: ArrayLike, lanes: int) -> int:
    """Return the cycles from the first beat taken to the last result given, both included.

    ``counts`` holds the number of weights of each beat, (beats,); beats are offered and results
    taken without a pause, and the vector is loaded. This is the schedule of ``sparse``: every
    cycle one beat goes to the lane with the least left to do, of those that have no beat waiting;
    a lane does one product a cycle; one beat's sum is merged a cycle, in order. A beat without
    weights goes to no lane.
    """
    busy = [0] * lanes  # products left of each lane's beat
    waiting = [0] * lanes  # products of the beat behind it
    cycle = 0
    merged = 0
    for count in np.asarray(counts, dtype=np.int64).tolist():
        taken = False
        while not taken:
            free = [lane for lane in range(lanes) if not waiting[lane]]
            taken = not count or bool(free)
            if count and free:
                lane = min(free, key=lambda lane: busy[lane])
                start = cycle + max(1, busy[lane])
                waiting[lane] = count
                ready = start + count - 1 + LATENCY
            elif taken:
                ready = cycle + 1
            for lane in range(lanes):
                busy[lane] = max(0, busy[lane] - 1)
                if not busy[lane]:
                    busy[lane], waiting[lane] = waiting[lane], 0
            cycle += 1
        merged = max(merged + 1, ready)
    return merged + 2
