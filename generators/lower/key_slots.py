"""Layout of a row of attention queries if the keys of several heads share a weight slot.

In a slot (array storage for one tile), the keys of the heads are one below another. So in the row,
zeros precede the queries of some heads, and meet the keys of other heads.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import RING_SLOTS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.tensors import Rescale
from celosia.generators.quantize.options import NARROW_BITS


def most_key_heads(decoder: Decoder, config: Config) -> int:
    """Return the largest number of heads whose keys can share a weight slot (storage for one tile).

    The result is 1 if a head's number of columns is not a multiple of the array's, or if keys and
    values have fewer than 8 bits. It is also 1 for encoder-decoders, and if each run loads the
    weights.
    """
    resident = config.array.weight_depth > RING_SLOTS
    alone = decoder.source is not None or decoder.kv_bits < NARROW_BITS
    if alone or not resident or decoder.key_dim % config.array.cols:
        return 1
    return max(1, min(config.array.rows // decoder.key_dim, decoder.description.kv_heads))


def query_starts(decoder: Decoder, key_heads: int, *, spaced: bool = False) -> list[int]:
    """Return the first column of each head's query in a row of all queries, and the row's width.

    If the keys of ``key_heads`` heads share a weight slot, all queries but the first of a slot
    follow zeros. Four heads of 4 columns, two heads in a slot, give ``[0, 8, 12, 20, 24]``; 24 is
    the width. If ``spaced`` is true, all queries follow zeros: ``[4, 12, 20, 28, 32]``.
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
    """Return the indices of the tile columns with queries, in a row of all queries and zeros.

    A tile column has ``cols`` columns. If ``key_heads`` heads share a weight slot, zeros precede
    some of the queries. For example, pairs of heads give a row of head 0, zeros, head 1, head 2,
    zeros and head 3, and the result ``[0, 2, 3, 5]``. The result is empty if ``key_heads`` is 1 or
    ``spaced`` is true.
    """
    if key_heads == 1 or spaced:
        return []
    tiles = range(decoder.key_dim // cols)
    *starts, _ = query_starts(decoder, key_heads)
    return [start // cols + tile for start in starts for tile in tiles]


def with_zero_columns(rescale: Rescale, places: Sequence[int], cols: int) -> Rescale:
    """Return requantization parameters for a row of queries that also has tile columns of zeros.

    - ``rescale``: parameters of the columns of queries.
    - ``places``: ascending indices of the tile columns (``cols`` columns each) with queries. All
      other tile columns contain zeros.
    """
    multiplier, shift = rescale.multiplier, rescale.shift
    parameters = []
    for values, other in ((rescale.bias, 0), (multiplier, multiplier[0]), (shift, shift[0])):
        made = np.full((places[-1] + 1, cols), other)  # [tile columns, cols]
        made[[*places]] = values.reshape(len(places), cols)
        parameters.append(made.ravel())
    return Rescale(*parameters)


def even_runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Divide ascending numbers into groups whose successive numbers have equal differences.

    The function yields (index in ``places`` of the group's first number, count, difference). For
    example, 0, 2, 3, 4 gives (0, 2, 2) and (2, 2, 1). The difference is 1 for a single number.
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
