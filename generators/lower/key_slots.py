"""Zeros beside queries, with which several heads can share the weight slots of their keys.

A weight slot is storage in the array for one weight tile. A token's key is a column of the slot. If
the slot has enough rows, a column can have the keys of several heads, one below the other. A query
must be multiplied by its head's key only. So the query begins with zeros, one for each slot row
above this key.

Usually the requantization of the queries also writes the zeros, from accumulator rows that contain
0. An exception is the requantization of single rows, if heads are as wide as the array. Setup then
writes the zeros, and runs leave them unchanged.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import RING_SLOTS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.tensors import Rescale
from celosia.generators.quantize.options import NARROW_BITS


def most_key_heads(decoder: Decoder, config: Config) -> int:
    """Return the largest number of key heads whose keys can share a weight slot.

    A weight slot is storage in the array for one weight tile. The heads' keys are one below the
    other, and each head uses as many slot rows as it has columns. The result is the number of
    heads that fit, but at most the model's key heads.

    The result is 1 in these cases:

    - A head's number of columns is not a multiple of the array's columns.
    - Keys and values have fewer than 8 bits.
    - Weights are streamed from external memory.
    - The model is an encoder-decoder.
    """
    resident = config.array.weight_depth > RING_SLOTS
    alone = decoder.source is not None or decoder.kv_bits < NARROW_BITS
    if alone or not resident or decoder.key_dim % config.array.cols:
        return 1
    return max(1, min(config.array.rows // decoder.key_dim, decoder.description.kv_heads))


def query_starts(decoder: Decoder, key_heads: int, *, spaced: bool = False) -> list[int]:
    """Return the column at which each head's queries begin, in a row with the queries of all heads.

    The list has one more element: the number of columns of the row. A weight slot (array storage
    for one weight tile) has the keys of ``key_heads`` heads, one head's keys below another's. A
    product multiplies the row by all of these keys. Therefore zeros precede a head's queries: they
    are multiplied by the keys of other heads, which are above this head's keys in the slot.

    - If ``spaced`` is false, the number of zeros is the number of slot rows above the head's keys.
    - If ``spaced`` is true, the number of zeros is ``(key_heads - 1) * key_dim`` for each head.
      Here ``key_dim`` is the number of columns of a head's queries.
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
    """Return the indices of the tile columns that contain queries, if others contain zeros.

    A tile column is a range of ``cols`` columns, as wide as the array. A row has the queries of all
    heads. A weight slot is storage in the array for one weight tile, and contains the keys of
    ``key_heads`` heads. If these are several heads, zeros precede the queries of some heads
    (:func:`query_starts`).

    If requantization writes only queries and no zeros, the list is empty. This is the case if
    ``key_heads`` is 1, and if ``spaced`` is true. If ``spaced`` is true, setup writes the zeros.
    """
    if key_heads == 1 or spaced:
        return []
    tiles = range(decoder.key_dim // cols)
    *starts, _ = query_starts(decoder, key_heads)
    return [start // cols + tile for start in starts for tile in tiles]


def spread(rescale: Rescale, places: Sequence[int], cols: int) -> Rescale:
    """Return requantization parameters for rows that have zeros between the queries of heads.

    The zeros are whole tile columns: ranges of columns as wide as the array. Their accumulators
    contain 0, and they get the bias 0, so that requantization writes zeros.

    - ``rescale`` has the parameters of all columns of queries.
    - ``places`` are the indices of the tile columns of queries in the row. The last one is also the
      row's last tile column.
    """
    multiplier, shift = rescale.multiplier, rescale.shift
    parameters = []
    for values, other in ((rescale.bias, 0), (multiplier, multiplier[0]), (shift, shift[0])):
        made = np.full((places[-1] + 1, cols), other)  # [tile columns, cols]
        made[[*places]] = values.reshape(len(places), cols)
        parameters.append(made.ravel())
    return Rescale(*parameters)


def even_runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Divide ``places`` into groups with equal distances, and yield the groups.

    ``places`` are ascending indices of tile columns: ranges of columns as wide as the array. Each
    group is (first, count, distance):

    - ``first`` is the position of the group's first index in ``places``.
    - ``count`` is the number of indices in the group.
    - ``distance`` is the difference between successive indices, or 1 for a single index.
    """
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
