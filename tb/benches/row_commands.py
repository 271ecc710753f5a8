"""Random commands of the load and store engines, and the words that these commands copy."""

from collections import deque

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.arch.latency import burst_words

DRAM_BYTES = 1 << 16
"""Bytes of the external memory that holds the rows."""
SHAPES = (1, 3), (1, 25), (1, 300), (3, 9), (12, 4), (500, 1)
"""Most words of a row, and most rows, of random commands."""
MOST = (2000, 1), (1, 1100)
"""Words of a row, if a bank has room for them, and rows of the last commands."""
SIZES = 10
"""Number of powers of two that are sizes; each has a command in bytes, and one in words plus
one."""
NEAR = 4
"""Greatest distance (words) of the end of every second command's first row from a boundary."""


def random_command(
    config: Config,
    random: np.random.Generator,
    opcode: Opcode,
    shape: tuple[int, int] | None = None,
) -> dict[str, int]:
    """Return a random LOAD or STORE, a dictionary from field to value.

    All rows fit in external memory, and in one bank of the scratchpad. ``shape`` is the pair
    (number of rows, bytes of a row); if ``shape`` is None, both numbers are random.
    """
    word = config.mem_bytes
    if shape is None:
        words, rows = random.choice(SHAPES)
        longest = min(config.bank_bytes, int(words) * word)
        m = int(random.integers(1, rows + 1))
        row_bytes = int(random.integers(max(1, longest // 2), longest + 1))
    else:
        m, row_bytes = shape
    bank = int(random.integers(config.scratchpad.banks)) * config.bank_bytes
    room = config.bank_bytes - row_bytes
    sp_stride = int(random.integers(-min(room // m, 99), min(room // m, 99) + 1))
    low = max(0, -sp_stride * (m - 1))
    high = room - max(0, sp_stride * (m - 1))
    span = DRAM_BYTES - row_bytes - word
    words = min(span // (m * word), 40 + row_bytes // word)
    stride = int(random.integers(-words, words + 1)) * word
    base = max(0, -stride * (m - 1)) + word - 1
    top = span - max(0, stride * (m - 1))
    addr = int(random.integers(base, max(base, top) + 1)) // word * word
    if random.random() < 0.5:
        boundary = burst_words(config.memory) * word
        away = (addr + row_bytes + boundary // 2) % boundary - boundary // 2
        near = addr - away // word * word + int(random.integers(-NEAR, NEAR + 1)) * word
        addr = near if base <= near <= top else addr
    return {
        "opcode": int(opcode),
        "push": int(random.integers(16)),
        "dram_addr": addr,
        "dram_stride": stride,
        "sp_addr": bank + int(random.integers(low, high + 1)),
        "sp_stride": sp_stride,
        "m": m,
        "row_bytes": row_bytes,
    }


def fixed_shapes(config: Config) -> list[tuple[int, int]]:
    """Return the sizes of test commands as pairs (number of rows, bytes of a row).

    The first commands have one row of 1, 2, 4 ... 512 bytes. The next ones have one row of 2, 3, 5
    ... 513 words. The last two have one row of 2000 words and 1100 rows of one word. No row is
    longer than a bank of the scratchpad.
    """
    word, room = config.mem_bytes, config.bank_bytes
    sizes = [1 << bit for bit in range(SIZES)]
    sizes += [(size + 1) * word for size in sizes]
    shapes = [(1, size) for size in sizes] + [(rows, words * word) for words, rows in MOST]
    return [(rows, min(size, room)) for rows, size in shapes]


def moved_rows(command: dict[str, int]) -> list[tuple[int, int]]:
    """Return the addresses of all rows that a LOAD or STORE copies, as pairs of byte addresses.

    The first address of a pair is in external memory, the second is in the scratchpad.
    """
    return [
        (
            command["dram_addr"] + row * command["dram_stride"],
            command["sp_addr"] + row * command["sp_stride"],
        )
        for row in range(command["m"])
    ]


def expected_moves(
    commands: list[dict[str, int]], config: Config, source: bytes, *, load: bool
) -> tuple[deque[tuple[int, bytes]], list[int]]:
    """Return the words that commands must copy, and the number of words up to each command's end.

    The result is a pair (moves, ends). ``moves`` is a queue of pairs (destination address, bytes),
    one per word. ``ends`` has a number for each command. The words come from ``source``: external
    memory if ``load`` is true, otherwise the scratchpad.
    """
    moves: deque[tuple[int, bytes]] = deque()
    ends = []
    for command in commands:
        for outside, inside in moved_rows(command):
            row_from, row_to = (outside, inside) if load else (inside, outside)
            for first in range(0, command["row_bytes"], config.mem_bytes):
                end = min(command["row_bytes"], first + config.mem_bytes)
                moves.append((row_to + first, source[row_from + first : row_from + end]))
        ends.append(len(moves))
    return moves, ends
