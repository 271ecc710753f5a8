"""Texts as the numbers of their characters, by a file that numbers them."""

import json
from pathlib import Path

from arch.errors import InputError


class CharacterTokenizer:
    """One token for each character.

    A text begins behind a line's end, as if another one stood before it.
    """

    ends: frozenset[int]
    """Tokens behind which a text has ended: the line's end."""

    def __init__(self, path: Path, vocabulary: int):
        """Read a JSON object that gives each of ``vocabulary`` characters its number.

        Raises :class:`InputError` where the file cannot be read or is something else.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"Cannot read characters {path}: {error}") from error
        numbers = list(found.values()) if isinstance(found, dict) else []
        if sorted(map(str, numbers)) != sorted(map(str, range(vocabulary))):
            raise InputError(f"Characters {path} are not numbered from 0 to {vocabulary - 1}")
        if not all(len(character) == 1 for character in found) or "\n" not in found:
            raise InputError(f"Characters {path} are not single ones with the line's end")
        self._numbers: dict[str, int] = found
        self._characters: dict[int, str] = {number: text for text, number in found.items()}
        self.begin = found["\n"]
        self.ends = frozenset({self.begin})

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, the first of them the line's end before it.

        Raises :class:`InputError` where a character has no number.
        """
        for character in text:
            if character not in self._numbers:
                raise InputError(f"Character {character!r} has no token")
        return [self.begin, *(self._numbers[character] for character in text)]

    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that a token adds to a text, whatever is ``before``."""
        return self._characters[token].encode()

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens, without line's ends."""
        return "".join(self._characters[token] for token in tokens if token not in self.ends)
