"""Division of a linear layer's weight matrix into parts, each stored as one matrix.

A part is usually stored as a dense matrix. If the machine has a zero-skip unit, a part may instead
be stored as a sparse matrix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.latency import sparse_cycles
from celosia.arch.sparse import HEADER_BEATS, LEAST_K, beat_bytes
from celosia.generators.graph.operations import Linear, Op
from celosia.generators.graph.quantized import IntegerGraph, QuantizedModel
from celosia.generators.graph.stored import in_pairs, packed_pairs, part_rows, stored_rows
from celosia.generators.program.image import Bytes
from celosia.generators.program.layout import aligned_rows
from celosia.sim.sparse import encode

Mask = NDArray[np.bool_]
PRODUCT_WORDS = DEFINITIONS[Opcode.MATMUL].words
"""Words of a product's instruction."""


@dataclass(frozen=True)
class WeightRectangle:
    """A rectangle of a layer's weight matrix: a range of rows and a range of columns.

    The weights of a layer are stored as one or more rectangles, each in contiguous memory.
    """

    rows: slice
    columns: slice
    tile: int = 0
    """First tile column, from that of the first columns on."""
    beats: int = 0
    """Entries of each lane if they are coded as a sparse matrix, otherwise 0."""

    @property
    def k(self) -> int:
        """Number of rows of this rectangle of a weight matrix."""
        return int(self.rows.stop - self.rows.start)

    @property
    def n(self) -> int:
        """Number of columns of this rectangle of a weight matrix."""
        return int(self.columns.stop - self.columns.start)

    def tiles(self, config: Config) -> int:
        """Return the number of weight tiles that cover this rectangle of a weight matrix.

        A tile has the size of the array. The last tile of a row or column may be partly empty.
        """
        return -(-self.k // config.array.rows) * -(-self.n // config.array.cols)


def cuts(
    op: Linear, part: WeightRectangle, size: int, config: Config, bounds: Sequence[int] = ()
) -> Iterator[WeightRectangle]:
    """Divide a rectangle of a weight matrix into pieces of at most ``size`` bytes, and yield them.

    A piece has whole tile columns (as wide as the array), or some rows of one tile column.
    ``bounds`` are indices of tile columns that no piece crosses. The first is 0, and the last is
    the number of tile columns.
    """
    stored, cols = op.stored, config.array.cols
    tiles = size // (stored_rows(stored, part.k) * cols)
    least = part_rows(stored, config)
    depth = part.k if tiles else size // (stored_rows(stored, least) * cols) * least
    total = -(-part.n // cols)
    starts = [
        first + start
        for first, end in pairwise(bounds or (0, total))
        for start, _ in split(end - first, -(-(end - first) // (tiles or 1)))
    ]
    left, right = part.columns.start, part.columns.stop
    for first, end in pairwise([*starts, total]):
        columns = slice(left + first * cols, min(right, left + end * cols))
        for row in range(part.rows.start, part.rows.stop, depth):
            yield WeightRectangle(
                slice(row, min(row + depth, part.rows.stop)), columns, part.tile + first
            )


def split(total: int, parts: int) -> list[tuple[int, int]]:
    """Divide ``total`` elements into at most ``parts`` ranges of about equal sizes.

    The result is a list of ranges (first, end). No range is empty.
    """
    parts = min(parts, total)
    bounds = [total * part // max(parts, 1) for part in range(parts + 1)]
    return list(pairwise(bounds))


def tiles_held(
    op: Linear, whole: WeightRectangle, config: Config, used: Mask | None, ratio: int, height: int
) -> list[WeightRectangle]:
    """Return the rectangles of a layer's weights to store, without large areas of zeros.

    The rectangles cover the nonzero weights of the rectangle ``whole``.

    - ``used``: mask of the weights, False for zeros; None to store all of ``whole``.
    - ``height``: number of activation rows in a product.
    - ``ratio``: cycles that the omission of an area must save for each additional program word.
    """
    if used is None:
        return [whole]
    depth, cols = part_rows(op.stored, config), config.array.cols
    tiles = tiles_used(used[whole.rows, whole.columns], depth, cols)
    cycles = depth // config.array.rows * max(height, config.array.rows)
    for begin, end, first, last in _rectangles(~tiles):
        size = (end - begin) * (last - first)
        if size * cycles < ratio * PRODUCT_WORDS and end - begin < len(tiles):
            tiles[begin:end, first:last] = True
    rows, columns = whole.rows, whole.columns
    return [
        WeightRectangle(
            slice(rows.start + begin * depth, min(rows.start + end * depth, rows.stop)),
            slice(columns.start + first * cols, min(columns.start + last * cols, columns.stop)),
            whole.tile + first,
        )
        for begin, end, first, last in _rectangles(tiles)
    ]


def weights_used(model: QuantizedModel, op: Linear, *, looped: bool) -> Mask | None:
    """Return a mask [k, n] of a linear layer's weights, which is False for weights that are zero.

    If ``looped`` is true, the layers are iterations of a loop, and only weights that are zero in
    all layers give False. The result is None if all weights must be stored: for weights in bit
    planes, and for matrices of low-rank corrections.
    """
    if op.planes or not any(other is op for other in model.ops):
        return None
    alike: Sequence[Op] = [op]
    if looped:
        places = zip(*model.layers, strict=False)
        alike = next((ops for ops in places if any(other is op for other in ops)), alike)
    used = np.asarray(op.weight != 0)
    for other in alike:
        if other is not op and isinstance(other, Linear) and other.weight.shape == used.shape:
            used |= other.weight != 0
    return used


def tiles_used(used: Mask, rows: int, cols: int) -> Mask:
    """Return a mask of the tiles that contain a used weight, [rows of tiles, columns of tiles].

    ``used`` [k, n] is True for each used weight of a matrix. A tile has ``rows`` rows and ``cols``
    columns; the last tiles may have fewer.
    """
    (k, n) = used.shape
    by_rows = np.logical_or.reduceat(used, np.arange(0, k, rows), axis=0)
    return np.logical_or.reduceat(by_rows, np.arange(0, n, cols), axis=1)


def _rectangles(tiles: Mask) -> list[tuple[int, int, int, int]]:
    """Return (begin, end, first, last) of each run of True tiles in a column.

    Tile columns ``first`` to ``last`` - 1, which are adjacent, have the same run.
    """
    edges = np.argwhere(np.diff(tiles, axis=0, prepend=False, append=False).T).tolist()
    ended, running = list[tuple[int, int, int, int]](), dict[tuple[int, int], tuple[int, int]]()
    for (column, begin), (_, end) in zip(edges[::2], edges[1::2], strict=True):
        first, last = running.get((begin, end), (column, column))
        if last < column:
            ended.append((begin, end, first, last))
            first = column
        running[begin, end] = first, column + 1
    ended += [(*run, *columns) for run, columns in running.items()]
    return sorted(ended, key=lambda each: (each[2], each[0]))


def slot_form(
    op: Linear, rows: slice, config: Config, flags: frozenset[str]
) -> tuple[Linear, slice, frozenset[str], frozenset[str]]:
    """Return a layer's weights in the form that weight slots (storage in the array) contain.

    The result is (layer, range of its weight rows, flags of PRELOAD, flags of MATMUL). ``flags``
    select the weight format.

    - If a slot's byte contains two weights: the layer in the result has these bytes as weights, and
      MATMUL decodes them.
    - Otherwise: the layer is ``op``, and PRELOAD decodes the weights.
    """
    if op.stored is None or not in_pairs(op.stored, config):
        return op, rows, flags, frozenset()
    both, stored = packed_pairs(op.stored, rows, config.array.rows)
    slot_op = replace(op, weight=both, stored=stored)
    return slot_op, slice(0, len(both)), flags & {"grouped"}, flags


def stored_parts(
    op: Linear, whole: WeightRectangle, held: Sequence[WeightRectangle], config: Config, height: int
) -> Iterator[tuple[WeightRectangle, Bytes]]:
    """Yield the bytes to store for the rectangle ``whole`` of a layer's weights.

    - Usually: (rectangle, bytes of a dense matrix) for each rectangle in ``held``. These rectangles
      contain all nonzero weights.
    - If a sparse matrix is faster and not larger: only (``whole``, bytes of the sparse matrix).

    ``height`` is the number of activation rows in a product, or 0 to exclude sparse matrices.
    """
    coded = _coded(op, whole, held, config, height)
    if coded is not None:
        yield coded
        return
    for stored in held:
        data = op.data(stored.rows, stored.columns)
        yield stored, aligned_rows(data, config).ravel()


def _coded(
    op: Linear, whole: WeightRectangle, held: Sequence[WeightRectangle], config: Config, height: int
) -> tuple[WeightRectangle, Bytes] | None:
    """Return the whole as a sparse matrix if that is faster, by the limit of each.

    The limit is that of bytes loaded, or of products.
    """
    if not height or op.stored is not None or not LEAST_K <= whole.k <= config.sparse_depth:
        return None
    code = encode(op.weight[whole.rows, whole.columns], config.sparse_lanes, config.array.cols)
    beats = code.size // beat_bytes(config.sparse_lanes) - HEADER_BEATS
    dense = stored = 0
    for stored_part in held:
        dense += stored_part.tiles(config) * max(height, config.array.rows)
        stored += stored_part.k * stored_part.n
    sparse = sparse_cycles(config, config.sparse_lanes, height, whole.k, whole.n, beats)
    faster = max(sparse, code.size // config.mem_bytes) < max(dense, stored // config.mem_bytes)
    return (replace(whole, beats=beats), code) if faster and code.size <= stored else None


def coded_bytes(model: IntegerGraph, config: Config) -> int:
    """Return the predicted size (bytes) of all linear layers' weights in external memory.

    A weight matrix may be stored in a sparse form, without zeros. Its size is that of the sparse
    form if this form is not larger, and makes the product with one row of activations faster.
    """
    total = 0
    for op in (part for linear in model.linears for part in linear.parts):
        k, n = op.weight.shape
        whole = WeightRectangle(slice(0, k), slice(0, n))
        parts = stored_parts(op, whole, [whole], config, int(not op.source.wide))
        total += sum(data.size for _, data in parts)
    return total
