"""The storage format of a sparse matrix in external memory and scratchpad.

A matrix [k, n] is coded column by column, and each column from row 0 on. Its code is a list of
entries of :data:`ENTRY_WIDTH` bits: a signed value in the low 8 bits, and the field ``run`` in the
upper 4 bits. An entry with a nonzero value encodes ``run`` zeros followed by this value. An entry
with value 0 encodes ``16 * (run + 1)`` zeros; this number is at most ``k``. An entry with value 0
and run :data:`NOTHING` encodes no element.

The sparse unit has several lanes, which work in parallel. The matrix is divided into one part for
each lane, and the lane reads the entries of its part. A part may begin and end within a column.
Entries that encode no element pad the parts of lanes that have fewer entries than others. The
entries are stored in beats. A beat is a word with the next entry of every lane; the entry of lane 0
is in the lowest bits. The size of a beat is rounded up to whole bytes. :data:`HEADER_BEATS` beats
precede the entries. They give the position of each lane's first element: its tile (``column //
cols``), its column in that tile, and its row. ``cols`` is the number of columns of the array.
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
    """Return the size of a beat (bytes).

    A beat holds one entry for each of ``lanes`` lanes.
    """
    return -(-lanes * ENTRY_WIDTH // 8)


def code_bytes(lanes: int, beats: int) -> int:
    """Return the size of a sparse matrix in this storage format, including its header (bytes).

    ``beats`` is the number of beats after the header. A beat is a word with one entry for each of
    ``lanes`` lanes.
    """
    return (HEADER_BEATS + beats) * beat_bytes(lanes)
