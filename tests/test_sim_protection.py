"""Check bits of the golden model: every word with none, one and two wrong bits."""

from itertools import combinations

import pytest

from celosia.sim.protection import Found, decode, encode

WORDS = (0, 1, 0x5A, 0xA5, 0xFF)


def flipped(word: int, check: int, width: int, places: tuple[int, ...]) -> tuple[int, int]:
    """Return a stored word and its check bits with wrong bits; those of the check come last."""
    both = check << width | word
    for place in places:
        both ^= 1 << place
    return both % (1 << width), both >> width


def test_a_code_corrects_one_wrong_bit_and_detects_two() -> None:
    width, checks = 8, 5
    assert len(Found) == 3
    for word in WORDS:
        check = encode(word, width, "correct")
        assert check < 1 << checks
        assert decode(word, check, width, "correct") == (word, Found.RIGHT)
        for place in range(width + checks):
            stored = flipped(word, check, width, (place,))
            assert decode(*stored, width, "correct") == (word, Found.CORRECTED)
        for places in combinations(range(width + checks), 2):
            stored = flipped(word, check, width, places)
            assert decode(*stored, width, "correct")[1] == Found.WRONG


@pytest.mark.parametrize("width", [1, 7])
def test_a_parity_bit_detects_one_wrong_bit(width: int) -> None:
    for word in range(1 << width):
        check = encode(word, width, "detect")
        assert check == word.bit_count() % 2
        assert decode(word, check, width, "detect") == (word, Found.RIGHT)
        for place in range(width + 1):
            wrong, bit = flipped(word, check, width, (place,))
            assert decode(wrong, bit, width, "detect") == (wrong, Found.WRONG)
