"""The storage format of a sparse matrix in external memory and scratchpad.

A matrix [k, n] is coded column by column, and each column from row 0 on. Its code is a list of
entries of :data:`ENTRY_WIDTH` bits: a signed value in the low 8 bits, and the field ``run`` in the
upper 4 bits. An entry with a nonzero value encodes ``run`` zeros followed by this value. An entry
with value 0 encodes ``16 * (run + 1)`` zeros, at most ``k``. An entry with value 0 and run
:data:`NOTHING` encodes no element.

The sparse unit multiplies in several lanes at once. Each lane reads the entries of a range of
consecutive elements, which may begin and end within a column. Entries that encode no element pad
the lanes to equal numbers of entries. The entries are stored in beats. A beat is a word with the
next entry of every lane, lane 0 in the lowest bits, rounded up to whole bytes.

Before the entries, :data:`HEADER_BEATS` beats give the position of each lane's first element: its
tile (``column // cols``) in beat 0, its column in that tile in beat 1, and its row in beat 2.
``cols`` is the number of columns of the array.
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
