"""Weight slots with the keys of several key heads, and queries that select one head.

A key is a column of a slot, which has ``rows`` rows. If a slot has room for two heads of keys or
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
    """Return the largest number of key heads that can share a slot.

    The number is 1 if queries cannot have zeros before them, because these zeros are whole tile
    columns. It is also 1 for slots that contain heads in pairs, and for an encoder-decoder, whose
    queries would also read the slots of a source's keys.
    """
    resident = config.array.weight_depth > RING_SLOTS
    alone = decoder.source is not None or decoder.kv_bits < NARROW_BITS
    if alone or not resident or decoder.key_dim % config.array.cols:
        return 1
    return max(1, min(config.array.rows // decoder.key_dim, decoder.description.kv_heads))


def query_starts(decoder: Decoder, key_heads: int, *, spaced: bool = False) -> list[int]:
    """Return the first column of each query head in a row, then the row's number of columns.

    Before a head's first column there is a zero for each key row above the head's keys in a slot of
    ``key_heads`` heads. With ``spaced`` all heads have the same number of columns.
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
    """Return the index of each tile column of queries among the drained tile columns.

    The result is empty if there are no tile columns of zeros between them: with one key head in a
    slot, or if the drain spaces heads (``spaced``).
    """
    if key_heads == 1 or spaced:
        return []
    tiles = range(decoder.key_dim // cols)
    *starts, _ = query_starts(decoder, key_heads)
    return [start // cols + tile for start in starts for tile in tiles]


def spread(rescale: Rescale, places: Sequence[int], cols: int) -> Rescale:
    """Return requantization parameters for drained tile columns, including those of zeros.

    ``places`` are the indices of the tile columns of ``rescale`` among the drained ones. Tile
    columns between them get parameters that map zero to zero.
    """
    multiplier, shift = rescale.multiplier, rescale.shift
    parameters = []
    for values, other in ((rescale.bias, 0), (multiplier, multiplier[0]), (shift, shift[0])):
        made = np.full((places[-1] + 1, cols), other)  # [tile columns, cols]
        made[[*places]] = values.reshape(len(places), cols)
        parameters.append(made.ravel())
    return Rescale(*parameters)


def even_runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield runs (first, count, distance) of tile columns whose indices are equally spaced."""
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
