"""The code of a sparse matrix, as external memory and scratchpad hold it.

A matrix [k, n] is coded column behind column, k from 0 on, as entries of :data:`ENTRY_WIDTH` bits:
a value in the low 8, signed, and a run in the 4 above. An entry with a value other than 0 stands
for ``run`` zeros and this value. One with value 0 stands for ``16 * (run + 1)`` zeros, at most
``k`` of them, or with run :data:`NOTHING` for none.

The entries are dealt out to lanes: each lane has those of a stretch of the matrix, which may begin
and end within a column. A beat has the next entry of every lane, the one of lane 0 in the lowest
bits, in as many bytes as that takes. In front of the entries are :data:`HEADER_BEATS` beats, which
tell of each lane the element that it begins with: its tile (``column // cols``), its column in that
tile, and its row.
"""

VALUE_WIDTH = 8
"""Width of an entry's value (bits)."""
RUN_WIDTH = 4
"""Width of an entry's run (bits)."""
ENTRY_WIDTH = VALUE_WIDTH + RUN_WIDTH
"""Width of an entry, and of each of a lane's places in the header (bits)."""
NOTHING = (1 << RUN_WIDTH) - 1
"""The run of an entry of value 0 that stands for no element."""
HEADER_BEATS = 3
"""Beats in front of the entries: tiles, columns in them, rows."""
MOST_LOADED = 8
"""Activations that lanes take in at once, at most (bytes)."""
LEAST_K = 1 << RUN_WIDTH
"""Shortest columns that there is a code of (rows)."""


def beat_bytes(lanes: int) -> int:
    """Return the bytes of one beat, an entry for each lane."""
    return -(-lanes * ENTRY_WIDTH // 8)


def code_bytes(lanes: int, beats: int) -> int:
    """Return the bytes of a matrix whose lanes have so many entries each."""
    return (HEADER_BEATS + beats) * beat_bytes(lanes)
