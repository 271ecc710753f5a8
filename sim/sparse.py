"""Sparse matrices in the storage format of ``celosia.arch.sparse``: encode, decode, multiply."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError
from celosia.arch.sparse import (
    ENTRY_WIDTH,
    HEADER_BEATS,
    LEAST_K,
    NOTHING,
    RUN_WIDTH,
    VALUE_WIDTH,
    beat_bytes,
)

Ints = NDArray[np.int64]
STEP = 1 << RUN_WIDTH
"""Zeros in one unit of the run of an entry with value 0."""
PLACES = 1 << ENTRY_WIDTH
"""Number of tiles, columns or rows that a header can address."""


@dataclass(frozen=True)
class Decoded:
    """The nonzero weights of a coded matrix: their rows, columns and values, in three arrays."""

    k: Ints
    """Rows, [products]."""
    column: Ints
    """Columns, [products]."""
    value: Ints
    """Weights, none 0, [products]."""
    skipped: int
    """Zeros that the entries skip."""

    def matrix(self, k: int, n: int) -> Ints:
        """Return the decoded matrix [k, n], zeros included."""
        weights = np.zeros((k, n), np.int64)
        weights[self.k, self.column] = self.value
        return weights


def encode(weight: ArrayLike, lanes: int, cols: int) -> NDArray[np.uint8]:
    """Return the bytes that encode a sparse INT8 matrix [k, n] for the sparse unit.

    The code (:mod:`celosia.arch.sparse`) is the shortest for a unit with ``lanes`` lanes and tiles
    of ``cols`` columns. Raises :class:`InputError` if k is not from 16 to 4096, or n exceeds ``4096
    * cols``.
    """
    matrix = np.asarray(weight, np.int64)
    k, n = matrix.shape
    if not LEAST_K <= k <= PLACES or -(-n // cols) > PLACES:
        raise InputError(
            f"A sparse matrix must have from {LEAST_K} to {PLACES} rows and at most "
            f"{PLACES * cols} columns, not shape {matrix.shape}"
        )
    flat = matrix.T.ravel()  # [n * k], column behind column
    places = np.flatnonzero(flat)
    gaps = np.diff(places, prepend=0) - 1
    # Zeros of whole steps that one entry skips; the rest is in the run of the product's entry.
    longest = min(NOTHING * STEP, k // STEP * STEP)
    escapes = -(-(gaps // STEP * STEP) // longest)
    ends = np.cumsum(1 + escapes)  # entries up to each product, [products]
    # The first product of a lane needs no entries for the zeros before it.
    least = len(places) + int(np.sort(escapes)[:-lanes].sum())
    beats = max(1, -(-least // lanes))
    while (cuts := _deal(ends, escapes, beats, lanes)) is None:
        beats += 1
    entries = np.full((lanes, beats), NOTHING << VALUE_WIDTH, np.int64)
    header = np.zeros((HEADER_BEATS, lanes), np.int64)
    for lane, (first, last) in enumerate(cuts):
        if first == last:
            continue
        column, row = divmod(int(places[first]), k)
        header[:, lane] = *divmod(column, cols), row
        codes: list[int] = []
        for index in range(first, last):
            gap = int(gaps[index]) if index > first else 0
            while gap >= STEP:
                steps = min(gap, longest) // STEP
                codes.append((steps - 1) << VALUE_WIDTH)
                gap -= steps * STEP
            codes.append(gap << VALUE_WIDTH | int(flat[places[index]]) % (1 << VALUE_WIDTH))
        entries[lane, : len(codes)] = codes
    return _pack(np.concatenate([header, entries.T]))


def _deal(ends: Ints, escapes: Ints, beats: int, lanes: int) -> list[tuple[int, int]] | None:
    """Return each lane's products (first, end) if ``beats`` entries a lane suffice, else None."""
    cuts, first = [], 0
    for _ in range(lanes):
        last = first
        if first < len(ends):
            # A lane begins with a product: the zeros before it have no entries.
            before = int(ends[first]) - 1
            last = int(np.searchsorted(ends, before + beats, side="right"))
        cuts.append((first, last))
        first = last
    return cuts if first == len(ends) else None


def _pack(fields: Ints) -> NDArray[np.uint8]:
    """Return fields [beats, lanes] as bytes, beat by beat, [bytes]."""
    beats, lanes = fields.shape
    bits = (fields[:, :, None] >> np.arange(ENTRY_WIDTH) & 1).astype(np.uint8)
    padded = np.zeros((beats, 8 * beat_bytes(lanes)), np.uint8)
    padded[:, : lanes * ENTRY_WIDTH] = bits.reshape(beats, -1)
    return np.packbits(padded, axis=1, bitorder="little").ravel()


def decode(code: NDArray[np.uint8], lanes: int, cols: int, k: int) -> Decoded:
    """Return the rows, columns and values of the nonzero weights of a coded matrix.

    ``code`` holds the bytes that :func:`encode` returns for a matrix with ``k`` rows and the same
    ``lanes`` and ``cols``.
    """
    bits = np.unpackbits(code.reshape(-1, beat_bytes(lanes)), axis=1, bitorder="little")
    bits = bits[:, : lanes * ENTRY_WIDTH].reshape(-1, lanes, ENTRY_WIDTH).astype(np.int64)
    fields = bits @ (1 << np.arange(ENTRY_WIDTH))  # [HEADER_BEATS + beats, lanes]
    (tile, column, row), entries = fields[:HEADER_BEATS], fields[HEADER_BEATS:]
    run, value = entries >> VALUE_WIDTH, entries % (1 << VALUE_WIDTH)
    value -= value >> (VALUE_WIDTH - 1) << VALUE_WIDTH
    product = value != 0  # [beats, lanes]
    zeros = np.where(product, run, np.where(run == NOTHING, 0, STEP * (run + 1)))
    # Position of each entry's element in the concatenated columns of the matrix.
    passed = np.cumsum(zeros + product, axis=0) - product
    place = (tile * cols + column) * k + row + passed
    return Decoded(place[product] % k, place[product] // k, value[product], int(zeros.sum()))


def multiply(a: Ints, decoded: Decoded, n: int) -> Ints:
    """Return the exact matrix product [m, n] of integers ``a`` [m, k] and a sparse matrix [k, n].

    ``decoded`` has the sparse matrix as lists of its nonzero elements (the result of
    :func:`decode`).
    """
    # Exact: no sum of max_k products reaches 2**53.
    return (a.astype(np.float64) @ decoded.matrix(a.shape[1], n)).astype(np.int64)
