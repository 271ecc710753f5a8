"""Parts of a linear layer's weights as stored in external memory: dense or sparse."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.latency import sparse_cycles
from celosia.arch.sparse import HEADER_BEATS, LEAST_K, beat_bytes
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.stored import for_slots, in_pairs, part_rows, stored_rows
from celosia.generators.graph.tensors import Ints
from celosia.generators.program.image import Bytes
from celosia.generators.program.layout import aligned_rows
from celosia.sim.sparse import encode


@dataclass(frozen=True)
class Held:
    """A range of rows and columns of a layer's weights that is stored contiguously."""

    rows: slice
    columns: slice
    tile: int = 0
    """First tile column, from that of the first columns on."""
    beats: int = 0
    """Entries of each lane if they are coded as a sparse matrix, otherwise 0."""

    @property
    def k(self) -> int:
        """Number of rows of the part."""
        return int(self.rows.stop - self.rows.start)

    @property
    def n(self) -> int:
        """Number of columns of the part."""
        return int(self.columns.stop - self.columns.start)


def cuts(
    op: Linear, rows: slice, size: int, config: Config, bounds: Sequence[int] = ()
) -> Iterator[Held]:
    """Yield parts of the weights in ``rows``, with at most ``size`` bytes each.

    A part is several tile columns, or a part of one tile column if that is too large. No part
    crosses the tile columns ``bounds``, between which parts have about equal sizes.
    """
    stored, (k, n) = op.stored, (rows.stop - rows.start, op.weight.shape[1])
    tiles = size // (stored_rows(stored, k) * config.array.cols)
    least = part_rows(stored, config)
    depth = k if tiles else size // (stored_rows(stored, least) * config.array.cols) * least
    total = -(-n // config.array.cols)
    starts = [
        first + start
        for first, end in pairwise(bounds or (0, total))
        for start, _ in split(end - first, -(-(end - first) // (tiles or 1)))
    ]
    for first, end in pairwise([*starts, total]):
        columns = slice(first * config.array.cols, min(n, end * config.array.cols))
        for row in range(rows.start, rows.stop, depth):
            yield Held(slice(row, min(row + depth, rows.stop)), columns, first)


def split(total: int, parts: int) -> list[tuple[int, int]]:
    """Return (first, end) of at most ``parts`` parts of ``total`` with about equal sizes."""
    parts = min(parts, total)
    bounds = [total * part // max(parts, 1) for part in range(parts + 1)]
    return list(pairwise(bounds))


def tiles_held(
    op: Linear, rows: slice, columns: slice, config: Config, kept_zeros: int | None
) -> list[Held]:
    """Return the stored parts of weights in some rows and columns, without tiles of zeros.

    If ``kept_zeros`` is None, all weights are one part. Otherwise tiles of zeros are left out,
    unless fewer than ``kept_zeros`` of them are below each other. Adjacent tile columns without the
    same tiles are in one part. A tile column of zeros keeps its first tile, whose product defines
    the sums.
    """
    if kept_zeros is None or (op.stored and op.stored.group):
        return [Held(rows, columns)]
    used = tiles_used(op.weight[rows, columns], config.array.rows, config.array.cols)
    spans = [_spans(column, kept_zeros) for column in used.T]
    held = []
    first = 0
    for tile, runs in enumerate(spans):
        if tile + 1 < len(spans) and spans[tile + 1] == runs:
            continue
        left = columns.start + first * config.array.cols
        right = min(columns.start + (tile + 1) * config.array.cols, columns.stop)
        for begin, end in runs:
            last = min(rows.start + end * config.array.rows, rows.stop)
            part = slice(rows.start + begin * config.array.rows, last)
            held.append(Held(part, slice(left, right), first))
        first = tile + 1
    return held


def tiles_used(weight: Ints | Floats, rows: int, cols: int) -> NDArray[np.bool_]:
    """Return, for each tile of a weight [k, n], whether any element is nonzero, [kt, nt]."""
    (k, n) = weight.shape
    kt, nt = -(-k // rows), -(-n // cols)
    padded = np.zeros((kt * rows, nt * cols), np.bool_)
    padded[:k, :n] = weight != 0
    used = np.asarray(padded.reshape(kt, rows, nt, cols).any(axis=(1, 3)), np.bool_)
    return used


def _spans(used: NDArray[np.bool_], kept_zeros: int) -> list[tuple[int, int]]:
    """Return the (begin, end) of tiles [kt] to keep, with fewer zeros inside than that in a row."""
    spans: list[tuple[int, int]] = []
    for tile in np.flatnonzero(used):
        if spans and tile - spans[-1][1] < kept_zeros:
            spans[-1] = spans[-1][0], int(tile) + 1
        else:
            spans.append((int(tile), int(tile) + 1))
    return spans or [(0, 1)]


def slotted(
    op: Linear, rows: slice, config: Config, flags: frozenset[str]
) -> tuple[Linear, slice, frozenset[str], frozenset[str]]:
    """Return the form in which rows of a product's weights are preloaded into slots.

    The result is (product with the preloaded weights, its rows, flags of PRELOAD, flags of the
    product that reads the slots). ``flags`` are the flags of the weight format.
    """
    if op.stored is None or not in_pairs(op.stored, config):
        return op, rows, flags, frozenset()
    both, stored = for_slots(op.stored, rows, config.array.rows)
    slot_op = replace(op, weight=both, stored=stored)
    return slot_op, slice(0, len(both)), flags & {"grouped"}, flags


def stored_parts(
    op: Linear, whole: Held, held: Sequence[Held], config: Config, height: int
) -> Iterator[tuple[Held, Bytes]]:
    """Yield the parts ``held`` of weights with their bytes, or the ``whole`` as sparse matrix.

    The sparse matrix is used if the zero-skip unit is predicted to be faster in products of
    ``height`` rows, and never for 0 rows.
    """
    coded = _coded(op, whole, held, config, height)
    if coded is not None:
        yield coded
        return
    for stored in held:
        data = op.data(stored.rows, stored.columns)
        yield stored, aligned_rows(data, config).ravel()


def _coded(
    op: Linear, whole: Held, held: Sequence[Held], config: Config, height: int
) -> tuple[Held, Bytes] | None:
    """Return the whole as a sparse matrix if that is faster, by the limit of each.

    The limit is that of bytes loaded, or of products.
    """
    if not height or op.stored is not None or not LEAST_K <= whole.k <= config.sparse_depth:
        return None
    code = encode(op.weight[whole.rows, whole.columns], config.sparse_lanes, config.array.cols)
    beats = code.size // beat_bytes(config.sparse_lanes) - HEADER_BEATS
    dense = stored = 0
    for stored_part in held:
        tiles = -(-stored_part.k // config.array.rows) * -(-stored_part.n // config.array.cols)
        dense += tiles * max(height, config.array.rows)
        stored += stored_part.k * stored_part.n
    sparse = sparse_cycles(config, config.sparse_lanes, height, whole.k, whole.n, beats)
    faster = max(sparse, code.size // config.mem_bytes) < max(dense, stored // config.mem_bytes)
    return (replace(whole, beats=beats), code) if faster and code.size <= stored else None


def coded_bytes(model: IntegerGraph, config: Config) -> int:
    """Return the bytes of all linear layers' weights, as sparse matrices if faster for one row.

    In a compiled model the choice may differ for each part of a matrix.
    """
    total = 0
    for op in (
        part for model_op in model.ops if isinstance(model_op, Linear) for part in model_op.parts
    ):
        k, n = op.weight.shape
        whole = Held(slice(0, k), slice(0, n))
        parts = stored_parts(op, whole, [whole], config, int(not op.source.wide))
        total += sum(data.size for _, data in parts)
    return total
