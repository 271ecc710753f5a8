"""Golden model of the check bits that detect and correct wrong bits of stored words."""

from enum import Enum

from celosia.arch.protection import code_columns, column_patterns


class Found(Enum):
    """State of a stored word after a check: without error, corrected, or with a remaining error."""

    RIGHT = 0
    CORRECTED = 1
    WRONG = 2


def encode(word: int, width: int, level: str) -> int:
    """Return the check bits of a word of ``width`` bits.

    ``level`` is ``detect`` for a parity bit, or ``correct`` for an error-correcting code.
    """
    check = 0
    for place, column in enumerate(code_columns(width, level)):
        check ^= column * (word >> place & 1)
    return check


def decode(word: int, check: int, width: int, level: str) -> tuple[int, Found]:
    """Return (word, state): a stored word, corrected if possible, and its :class:`Found` state.

    ``check`` has the stored check bits of the ``width`` bits of the word. ``level`` is ``detect``
    or ``correct``. If the state is ``WRONG``, the returned word may have more wrong bits than the
    stored word.
    """
    syndrome = encode(word, width, level) ^ check
    if not syndrome:
        return word, Found.RIGHT
    if level == "detect":
        return word, Found.WRONG
    for place, (wrong, right) in enumerate(column_patterns(code_columns(width, level))):
        word ^= (not (~syndrome & wrong or syndrome & right)) << place
    return word, Found.CORRECTED if syndrome.bit_count() % 2 else Found.WRONG
