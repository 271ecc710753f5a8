"""The golden model of protected words."""

from enum import Enum

from celosia.arch.protection import code_columns, column_patterns


class Found(Enum):
    """The state of a stored word, as its check bits tell it."""

    RIGHT = 0
    CORRECTED = 1
    WRONG = 2


def encode(word: int, width: int, level: str) -> int:
    """Return the check bits of a word."""
    check = 0
    for place, column in enumerate(code_columns(width, level)):
        check ^= column * (word >> place & 1)
    return check


def decode(word: int, check: int, width: int, level: str) -> tuple[int, Found]:
    """Return the word that was stored, as far as it can be restored, and what was found of it.

    Of a word that is ``WRONG`` with ``correct``, further bits may be changed.
    """
    syndrome = encode(word, width, level) ^ check
    if not syndrome:
        return word, Found.RIGHT
    if level == "detect":
        return word, Found.WRONG
    for place, (wrong, right) in enumerate(column_patterns(code_columns(width, level))):
        word ^= (not (~syndrome & wrong or syndrome & right)) << place
    return word, Found.CORRECTED if syndrome.bit_count() % 2 else Found.WRONG
