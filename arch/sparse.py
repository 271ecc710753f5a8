"""The storage format of a sparse matrix in external memory and scratchpad.

A matrix [k, n] is coded column after column, each from row 0. The code is a list of entries of
:data:`ENTRY_WIDTH` bits: a signed value in the low 8 bits, and the field ``run`` in the upper 4
bits. There are three kinds of entries:

- If the value is not 0, the entry stands for ``run`` zeros and then the value.
- If the value is 0 and ``run`` is :data:`NOTHING`, the entry stands for no element.
- If the value is 0 and ``run`` is smaller, the entry stands for ``16 * (run + 1)`` zeros. An entry
  of more than ``k`` zeros is invalid.

The elements are divided among the lanes of the sparse unit. Each lane multiplies a range of
consecutive elements, which may begin and end within a column. Entries that stand for no element pad
all lanes to the same number of entries. A beat is a word with one entry for each lane, lane 0 in
the lowest bits, padded to whole bytes.

Before the entries, :data:`HEADER_BEATS` header beats hold the position of each lane's first
element: the tile (``column // cols``) in beat 0, the column in the tile in beat 1, and the row in
beat 2. ``cols`` is the number of columns of the array.
"""

VALUE_WIDTH = 8
"""Width of an entry's value (bits)."""
RUN_WIDTH = 4
"""Width of an entry's run (bits)."""
ENTRY_WIDTH = VALUE_WIDTH + RUN_WIDTH
"""Width of an entry, and of a lane's field in a header beat (bits)."""
NOTHING = (1 << RUN_WIDTH) - 1
"""Run of an entry with value 0 that stands for no element."""
HEADER_BEATS = 3
"""Beats before the entries: tiles, columns within tiles, rows."""
MOST_LOADED = 8
"""Most bytes of activations that the lanes load at once (bytes)."""
LEAST_K = 1 << RUN_WIDTH
"""Shortest column that can be coded (rows)."""


def beat_bytes(lanes: int) -> int:
    """Return the size of a beat: a word with one entry for each of ``lanes`` lanes (bytes).

    An entry is a part of a sparse matrix's code, with :data:`ENTRY_WIDTH` bits.
    """
    return -(-lanes * ENTRY_WIDTH // 8)


def code_bytes(lanes: int, beats: int) -> int:
    """Return the size of a coded sparse matrix, including its header (bytes).

    ``beats`` is the number of beats after the header. A beat is a word with one entry (a part of
    the code) for each of ``lanes`` lanes.
    """
    return (HEADER_BEATS + beats) * beat_bytes(lanes)
