"""Layout of attention queries if a weight slot contains the keys of several heads.

A weight slot is storage in the array for one weight tile. A token's key is a column of a slot. If
the slot has enough rows, the column contains the keys of several heads, one below another.

The array multiplies a query by the column, from the slot's first row to the key of the query's
head. So the query begins with zeros: one zero for each slot row above this key. The keys of other
heads then add nothing to the score.

There are two layouts:

- Usually each run writes the zeros together with the queries. The instruction that requantizes the
  queries then also reads accumulator rows that contain 0.
- In the spaced layout, a program that is executed once writes the zeros, and runs write only the
  queries. This takes fewer cycles. It needs a machine with the option ``fused``, heads as wide as
  the array, and instructions that requantize one row each.
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
    """Return the first column of each head's queries, in a row with the queries of all heads.

    The last element of the list is the number of columns of the row.

    A weight slot (array storage for one weight tile) contains the keys of ``key_heads`` heads, one
    head's keys below another's. A product multiplies a query by all slot rows from the first row to
    the keys of the query's head. So a query begins with one zero for each slot row above these
    keys.

    - If ``spaced`` is false, only these zeros are in the row.
    - If ``spaced`` is true, ``(key_heads - 1) * key_dim`` zeros precede each head's queries, also
      if fewer are needed. Here ``key_dim`` is the number of columns of a head. Then all heads begin
      at equal distances, so that one instruction can write them without the zeros.

    For example, 4 heads have separate keys and 4 columns each, and ``key_heads`` is 2. Heads 1 and
    3 need 4 zeros each. The result is ``[0, 8, 12, 20, 24]``, or ``[4, 12, 20, 28, 32]`` if
    ``spaced`` is true.
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
    """Return the indices of the tile columns that contain queries, in a row of queries and zeros.

    A tile column is a range of ``cols`` columns, as wide as the array. The row has the queries of
    all heads. If weight slots (array storage for one weight tile each) contain the keys of
    ``key_heads`` heads, tile columns of zeros precede some queries (:func:`query_starts`).

    The list is empty if requantization writes no zeros, in two cases:

    - ``key_heads`` is 1. The row then has no zeros.
    - ``spaced`` is true. The zeros are then written by a program that is executed once.

    For example, 4 heads have separate keys and 4 columns each, ``key_heads`` is 2, and ``cols`` is
    4. The tile columns 1 and 4 contain zeros, and the result is ``[0, 2, 3, 5]``.
    """
    if key_heads == 1 or spaced:
        return []
    tiles = range(decoder.key_dim // cols)
    *starts, _ = query_starts(decoder, key_heads)
    return [start // cols + tile for start in starts for tile in tiles]


def with_zero_columns(rescale: Rescale, places: Sequence[int], cols: int) -> Rescale:
    """Return requantization parameters for a row of queries that also has columns of zeros.

    If a weight slot (array storage for one weight tile) contains the keys of several heads, zeros
    precede the queries of some heads (:func:`query_starts`). The zeros fill whole tile columns:
    ranges of ``cols`` columns, as wide as the array.

    - ``rescale`` has the parameters of the columns of queries, without columns of zeros.
    - ``places`` are the indices of the tile columns of queries, in ascending order. The row ends
      with the last of these tile columns.

    The result has parameters for all columns of the row. Columns of zeros have the bias 0. Their
    accumulators contain 0, so that requantization writes 0. For example, if ``places`` is [1, 3],
    the tile columns 0 and 2 contain zeros.
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
