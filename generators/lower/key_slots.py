"""Several key heads in the same weight slots, and the queries for one of them.

A key is a column of a slot, which has ``rows`` places. If a slot has room for two heads of keys or
more, a token's keys are appended together. The queries of a head then have zeros for the heads
above it: tile columns of the accumulators that no product adds to, drained with them. If a drain
has one row, and a head one tile column, zeros are not rewritten, and the drain leaves them out.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import RING_SLOTS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.tensors import Rescale
from celosia.generators.quantize.options import NARROW_BITS


def most_key_heads(decoder: Decoder, config: Config) -> int:
    """Return the most key heads that can share a slot.

    It is 1 if queries cannot have zeros before them, because these zeros are whole tile columns. It
    is also 1 for slots that have heads in pairs already, and for slots of a source's keys, which
    the same queries would read.
    """
    resident = config.array.weight_depth > RING_SLOTS
    alone = decoder.source is not None or decoder.kv_bits < NARROW_BITS
    if alone or not resident or decoder.key_dim % config.array.cols:
        return 1
    return max(1, min(config.array.rows // decoder.key_dim, decoder.description.kv_heads))


def query_starts(decoder: Decoder, key_heads: int, *, spaced: bool = False) -> list[int]:
    """Return the first column of each query head in its row, and the columns of the row.

    Zeros come before it: one column for each column of keys above its keys in a slot of
    ``key_heads`` heads. Heads that are ``spaced`` all have the same number of columns.
    """
    model, starts, end = decoder.description, list[int](), 0
    if spaced:
        each = key_heads * decoder.key_dim
        return [*range(each - decoder.key_dim, each * model.heads, each), each * model.heads]
    for head in range(model.heads):
        start = end + head // model.group % key_heads * decoder.key_dim
        starts.append(start)
        end = start + decoder.key_dim
    return [*starts, end]


def query_places(decoder: Decoder, key_heads: int, cols: int, *, spaced: bool = False) -> list[int]:
    """Return the place of each tile column of queries among those that are drained.

    The result is empty if no tile columns lie between them: with one key head in a slot, or if the
    drain spaces heads (``spaced``).
    """
    if key_heads == 1 or spaced:
        return []
    tiles = range(decoder.key_dim // cols)
    *starts, _ = query_starts(decoder, key_heads)
    return [start // cols + tile for start in starts for tile in tiles]


def spread(rescale: Rescale, places: Sequence[int], cols: int) -> Rescale:
    """Return the parameters of tile columns at some places, [columns that are drained].

    The parameters of the columns between them turn zeros into zeros.
    """
    multiplier, shift = rescale.multiplier, rescale.shift
    parameters = []
    for values, other in ((rescale.bias, 0), (multiplier, multiplier[0]), (shift, shift[0])):
        made = np.full((places[-1] + 1, cols), other)  # [tile columns, cols]
        made[[*places]] = values.reshape(len(places), cols)
        parameters.append(made.ravel())
    return Rescale(*parameters)


def even_runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first, count, distance) of tile columns whose places are equally far apart."""
    first = 0
    while first < len(places):
        count, distance = 1, 1
        while first + count < len(places):
            step = places[first + count] - places[first + count - 1]
            if count > 1 and step != distance:
                break
            distance, count = step, count + 1
        yield first, count, distance
        first += count
