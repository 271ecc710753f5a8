"""Layout of a row of attention queries if the keys of several heads share a weight slot.

A weight slot is storage in the array for one weight tile. A token's key is a column of a slot. If
the slot has enough rows, a column has the keys of several heads, one below another. For example,
heads have 4 columns, and two heads share a slot. Slot rows 0 to 3 have the keys of head 0, and slot
rows 4 to 7 have the keys of head 1.

A product multiplies by the rows of a slot from row 0 on. So the operand of head 1 has 4 zeros,
which meet the keys of head 0, and then the query of head 1. The scratchpad has one row with the
queries of all heads and these zeros. There are two layouts of the row:

- Usual layout: query of head 0, 4 zeros, query of head 1. In each run, one DRAIN instruction
  requantizes the queries and also writes the zeros. It reads the zeros from accumulators that no
  product has written.
- Spaced layout: 4 zeros, query of head 0, 4 zeros, query of head 1. The product of head 0 begins at
  the query of head 0, so it does not read the zeros before. The zeros are written once, when the
  machine is set up. In each run, DRAIN writes only the queries, which takes fewer cycles.

The compiler chooses the layout in :func:`celosia.generators.lower.cuts.cuts_of`.
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
    """Return the first column of each head's query, in a row with the queries of all heads.

    The result has a number for each head, and then the number of columns of the row.

    The keys of ``key_heads`` heads share a weight slot, one head below another. A weight slot is
    storage in the array for one weight tile. A product multiplies by the rows of a slot from row 0
    on. If the keys of a head begin at slot row r, the row of queries has r zeros before the query
    of this head. The zeros meet the keys of the other heads.

    For example, 4 heads have 4 columns and separate keys, and ``key_heads`` is 2. The keys of heads
    0 and 2 begin at row 0 of a slot. The keys of heads 1 and 3 begin at row 4.

    - If ``spaced`` is false: the row has head 0, 4 zeros, head 1, head 2, 4 zeros, head 3. The
      result is ``[0, 8, 12, 20, 24]``.
    - If ``spaced`` is true: the row has 4 zeros before each head, also before heads 0 and 2. The
      result is ``[4, 12, 20, 28, 32]``. The equal distances allow one instruction to write the
      queries without the zeros.
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
    """Return the indices of the tile columns with queries, in a row of queries and zeros.

    A tile column is a range of ``cols`` columns, as wide as the array. The first tile column of the
    row has the index 0. In each run, one instruction (DRAIN) writes the queries of all heads to the
    row.

    ``key_heads`` is the number of heads whose keys share a weight slot, one head below another. A
    weight slot is storage in the array for one weight tile. A product multiplies by a slot from its
    first row on. So the instruction also writes zeros, before the query of each head that is not
    the first of its slot.

    For example, 4 heads have 4 columns and separate keys, ``key_heads`` is 2, and ``cols`` is 4.
    Heads 0 and 1 share a slot, and heads 2 and 3 share the next slot. The row has 6 tile columns:
    head 0, zeros, head 1, head 2, zeros, head 3. The result is ``[0, 2, 3, 5]``.

    The result is an empty list if the instruction writes queries but no zeros:

    - If ``key_heads`` is 1, the row has no zeros.
    - If ``spaced`` is true, the zeros are written once, when the machine is set up.
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
