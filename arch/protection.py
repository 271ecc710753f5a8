"""Protection of memories against flipped bits: the units that can have it, and the codes."""

from collections.abc import Sequence
from itertools import combinations

from celosia.arch.errors import InputError

LEVELS = ("none", "detect", "correct")
"""No code; a parity bit a part; a code that corrects one wrong bit of a part and detects two."""

UNITS = ("scratchpad", "accumulators", "program", "parameters", "queues", "control")
"""Units that can be protected: ``parameters`` with the tables of activations, ``queues`` of the
load engine's rows and, by parity at either level, of commands and of rows that wait for their
statistics; ``control`` is the registers that say what engines do, in two or three copies, and the
sequencer's registers."""

_TOLD = {"correct": {"parameters": "detect", "control": "detect"}}
"""Units with another level where a level is that of all: to correct them costs most."""


def protection(text: str) -> dict[str, str]:
    """Return the level of each unit from the field ``protect``.

    It is a level for all units, or ``UNIT=LEVEL`` for some, parted by commas. Raises
    :class:`InputError` where it is neither.
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
    """Return for each of ``width`` data bits a mask of the check bits that it is part of.

    With ``detect`` there is one check bit, the parity. With ``correct`` no two columns are equal
    and each has an odd number of bits, at least three, so that a wrong data bit, a wrong check bit
    and two wrong bits look different: the code of Hsiao (1970). Check bits have about as many
    data bits each, as their depth in gates is that of the largest.
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
    """Return the number of check bits of a code."""
    return max(columns).bit_length()


def column_patterns(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return for each column the check bits that are wrong and those that are right if its bit is.

    They are as few as tell the bit from each other one. Where more than one bit is wrong, several
    columns may be taken for such a bit, or none.
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
    """Return the check bits of a mask that columns have."""
    return [bit for bit in range(check_bits(columns)) if mask >> bit & 1]
