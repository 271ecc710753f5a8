"""Parity and error-correcting codes of memories, and the units that can have them."""

from collections.abc import Sequence
from itertools import combinations

from celosia.arch.errors import InputError

LEVELS = ("none", "detect", "correct")
"""Protection of each stored part: none; a parity bit that detects one wrong bit; a code that
corrects one wrong bit and detects two."""

UNITS = ("scratchpad", "accumulators", "program", "parameters", "queues", "control")
"""Units that can be protected. ``parameters`` includes the activation tables. ``queues`` are the
load engine's rows and, with parity at either level, commands and rows that wait for their
statistics. ``control`` is the engines' control registers, in two or three copies, and the
sequencer's registers."""

_TOLD = {"correct": {"parameters": "detect", "control": "detect"}}
"""Units whose level differs if one level is set for all: correcting them costs the most."""


def protection(text: str) -> dict[str, str]:
    """Return the protection level of each unit, for a value of the field ``protect``.

    ``text`` is one level for all units, or ``UNIT=LEVEL,...``, with ``none`` for other units. With
    ``correct`` alone, ``parameters`` and ``control`` have ``detect``. Raises :class:`InputError`
    for any other text.
    """
    if text in LEVELS:
        return dict.fromkeys(UNITS, text) | _TOLD.get(text, {})
    levels = dict.fromkeys(UNITS, LEVELS[0])
    for part in text.split(","):
        unit, _, level = part.partition("=")
        if unit not in UNITS or level not in LEVELS:
            raise InputError(
                f"Field protect must be {', '.join(LEVELS)}, or UNIT=LEVEL parted by commas with "
                f"a unit of {', '.join(UNITS)}, not {text!r}"
            )
        levels[unit] = level
    return levels


def code_columns(width: int, level: str) -> list[int]:
    """Return a code's columns: for each of ``width`` data bits, the mask of its check bits.

    A check bit is the parity of its data bits. Level ``detect`` has one check bit. Level
    ``correct`` is a code of Hsiao (1970): masks differ, and have an odd number of ones, at least
    three.
    """
    if level == "detect":
        return [1] * width
    checks = 3
    while (1 << (checks - 1)) - checks < width:
        checks += 1
    columns: list[int] = []
    loads = [0] * checks
    for weight in range(3, checks + 1, 2):
        left = list(combinations(range(checks), weight))
        while left and len(columns) < width:
            chosen = min(left, key=lambda bits: (max(loads[bit] for bit in bits), bits))
            left.remove(chosen)
            for bit in chosen:
                loads[bit] += 1
            columns.append(sum(1 << bit for bit in chosen))
    return columns


def check_bits(columns: Sequence[int]) -> int:
    """Return the number of check bits of a parity or error-correcting code.

    ``columns`` is the list that :func:`code_columns` returns. It has one mask for each data bit:
    bit i of the mask is 1 if check bit i covers the data bit.
    """
    return max(columns).bit_length()


def column_patterns(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return two masks of check bits, ``(failing, holding)``, for each data bit of a word.

    A word with at most one wrong bit has this data bit wrong if all check bits in ``failing`` fail,
    and none in ``holding``. ``columns`` are the masks of :func:`code_columns`.
    """
    patterns = []
    for column in columns:
        right = 0
        larger = [other for other in columns if other != column and other & column == column]
        while larger:
            counts = {
                bit: sum(other >> bit & 1 for other in larger) for bit in _bits(~column, larger)
            }
            right |= 1 << max(counts, key=lambda bit: counts[bit])
            larger = [other for other in larger if not other & right]
        patterns.append((column, right))
    return patterns


def _bits(mask: int, columns: Sequence[int]) -> list[int]:
    """Return the check bits of a mask that exist in the code."""
    return [bit for bit in range(check_bits(columns)) if mask >> bit & 1]
