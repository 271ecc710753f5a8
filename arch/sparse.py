"""The storage format of a sparse matrix [k, n] in external memory and scratchpad.

An entry has a signed value (low 8 bits) and a number ``run`` (4 bits). It stands for ``run`` zeros,
then the value. If the value is 0, the entry stands for ``16 * (run + 1)`` zeros, or for nothing if
``run`` is 15. Each lane of the sparse unit has a range of elements, counted column by column. A
beat is one entry for each lane. See equation (13) of ``docs/formats.md``.
"""

# Entries for nothing pad all lanes to the same number of beats. An entry of more than k zeros is
# invalid. A beat has lane 0 in its lowest bits, and is padded to whole bytes. HEADER_BEATS beats
# before the entries have the place of each lane's first element: the tile (column // cols of the
# array), then the column in the tile, then the row.

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
