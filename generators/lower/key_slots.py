"""Layout of attention queries if a weight slot contains the keys of several heads.

A weight slot is storage in the array for one weight tile. A token's key is a column of a slot. If
the slot has enough rows, a column contains the keys of several heads, one below another. For
example, heads have 4 columns. Rows 0 to 3 of the slot have the keys of head 0, and rows 4 to 7 have
the keys of head 1.

A product uses the rows of a slot from row 0 on. So a query of head 1 begins with 4 zeros, by which
the keys of head 0 are multiplied. The scratchpad has the zeros in the same row as the queries.

There are two layouts of such a row:

- Usual layout: only heads that need zeros have zeros before their queries. In each run, the DRAIN
  instruction that requantizes the queries also writes the zeros. Accumulators that no product has
  written contain 0, and the instruction reads the zeros there.
- Spaced layout: each head has equally many zeros before its queries. The zeros are written once,
  when the machine is set up, and stay in the scratchpad. In each run, DRAIN writes only the
  queries, which takes fewer cycles.

The compiler uses the spaced layout if all these conditions are met:

- SOFTMAX and NORM can read accumulators (option ``fused``).
- A head has as many columns as the array.
- Each DRAIN of queries has one row: the row of a single token.
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
    """Return the first column of each head's queries, in a row that also contains zeros.

    The row has the queries of all heads. The result has a number for each head, and then the number
    of columns of the row.

    A weight slot is storage in the array for one weight tile. It contains the keys of ``key_heads``
    heads, one below another. A product uses the rows of a slot from row 0 on. So zeros precede a
    query, one for each row above the keys of its head.

    For example, 4 heads have 4 columns and separate keys, and ``key_heads`` is 2. The keys of heads
    0 and 2 are in rows 0 to 3 of a slot. The keys of heads 1 and 3 are in rows 4 to 7.

    - If ``spaced`` is false: 4 zeros precede the queries of head 1, and those of head 3. The
      columns are: head 0 (0 to 3), zeros (4 to 7), head 1 (8 to 11), head 2 (12 to 15), zeros (16
      to 19), head 3 (20 to 23). The result is ``[0, 8, 12, 20, 24]``.
    - If ``spaced`` is true: 4 zeros precede the queries of every head. All heads are then at equal
      distances, so that one instruction can write the queries and omit the zeros. The result is
      ``[4, 12, 20, 28, 32]``.
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
    """Return the indices of the tile columns with queries, in a row that also contains zeros.

    A tile column is a range of ``cols`` columns, as wide as the array. A DRAIN instruction
    requantizes the queries of all heads, and writes them to one row. It also writes tile columns of
    zeros to this row.

    The zeros are needed if several heads share a weight slot (array storage for one weight tile).
    The keys of these ``key_heads`` heads are one below another in the slot. A product uses the
    slot's rows from row 0 on. So zeros precede the queries of each head whose keys are not at row
    0.

    For example, 4 heads have 4 columns and separate keys, ``key_heads`` is 2, and ``cols`` is 4.
    The row has 6 tile columns: head 0, zeros, head 1, head 2, zeros, head 3. The result is
    ``[0, 2, 3, 5]``.

    If the DRAIN writes only queries, the result is an empty list. There are two such cases:

    - ``key_heads`` is 1: no zeros are needed.
    - ``spaced`` is true: the zeros are written once, when the machine is set up.
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
