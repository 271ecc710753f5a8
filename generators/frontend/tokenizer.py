"""Texts as token numbers, by a tokenizer.json file."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.files import read_lines, read_text
from arch.packages import library
from generators.frontend.hugging_face_folder import read_json

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer:
    """A tokenizer of the format that Hugging Face's ``tokenizers`` reads, without padding."""

    def __init__(self, path: Path):
        """Read a tokenizer.json file.

        Raises :class:`InputError` where the package ``tokenizers`` is not installed, or the file
        cannot be read or is no tokenizer.
        """
        self._tokenizer: Any = _read_tokenizer(path)

    def encode(self, text: str, most: int) -> NDArray[np.int64]:
        """Return the token numbers of a text, [n], with the marks at its ends.

        The text is cut where it has more than ``most`` tokens with its marks. Raises
        :class:`InputError` where the text has no token, or its marks alone are too many.
        """
        marks = self._tokenizer.num_special_tokens_to_add(False)
        if most <= marks:
            raise InputError(f"A text takes more than {marks} tokens, but at most {most} may be")
        self._tokenizer.enable_truncation(max_length=most)
        numbers = np.array(self._tokenizer.encode(text).ids, np.int64)
        if not len(numbers):
            raise InputError(f"Text {text!r} has no tokens")
        return numbers


class TextTokenizer:
    """A tokenizer of that format for texts that go on, token by token."""

    def __init__(
        self, path: Path, begin: int | None, ends: frozenset[int], *, marked: bool = False
    ):
        """Read a tokenizer.json file; ``begin`` is the token before a text, ``ends`` those behind.

        Without a token before it, None, a text begins with its own first token, or, if ``marked``,
        has the marks at its ends that the file tells.

        Raises :class:`InputError` as :class:`Tokenizer`.
        """
        self._tokenizer: Any = _read_tokenizer(path)
        self.begin, self.ends, self._marked = begin, ends, marked

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, the first of them ``begin`` if there is one.

        Raises :class:`InputError` where that leaves none.
        """
        begin = [] if self.begin is None else [self.begin]
        return some([*begin, *self._tokenizer.encode(text, add_special_tokens=self._marked).ids])

    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that a token adds to a text behind the token ``before``.

        Nothing is before the first, -1. Of a character whose bytes are several tokens each adds a
        replacement character.
        """
        first = [before] if before >= 0 else []
        prefix = self.decode(first)
        return self.decode([*first, token])[len(prefix) :].encode()

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens, of which ``begin`` and ``ends`` add nothing."""
        marks = {self.begin, *self.ends}
        return str(self._tokenizer.decode([one for one in tokens if one not in marks]))


class NumberTokenizer:
    """Texts that are token numbers, for models that have no tokenizer."""

    begin = None
    ends: frozenset[int] = frozenset()

    def __init__(self, vocabulary: int):
        self._vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """Return the numbers in a text; raise :class:`InputError` where it holds anything else."""
        words = text.replace(",", " ").split()
        for word in words:
            if not word.isdecimal() or int(word) >= self._vocabulary:
                raise InputError(
                    f"A model without a tokenizer takes token numbers from 0 to "
                    f"{self._vocabulary - 1}, not {word!r}"
                )
        return some([int(word) for word in words])

    def piece(self, token: int, before: int) -> bytes:
        """Return a token's number, behind a space where another one is ``before``."""
        return f"{' ' if before >= 0 else ''}{token}".encode()

    def decode(self, tokens: list[int]) -> str:
        """Return the numbers of tokens."""
        return " ".join(map(str, tokens))


def some(tokens: list[int]) -> list[int]:
    """Return tokens; raise :class:`InputError` where there are none to begin with."""
    if not tokens:
        raise InputError("The model has no token that begins a text; give it one with --prompt")
    return tokens


def _read_tokenizer(path: Path) -> Any:
    """Return a tokenizer of the package ``tokenizers``, without padding."""
    tokenizers, content = (
        library("tokenizers", "Texts need", "tokenizers"),
        read_text(path, "tokenizer"),
    )
    try:
        found = tokenizers.Tokenizer.from_str(content)
    except Exception as error:
        raise InputError(f"Tokenizer {path} is not one: {error}") from error
    found.no_padding()
    return found


def read_sentences(path: Path, *, blank: bool = False) -> list[str]:
    """Return the lines of a text file without space at their ends.

    Blank lines are left out at the file's end, and with ``blank`` everywhere: else each line is an
    input, to which a label may belong. Raises :class:`InputError` where the file cannot be read,
    has a blank line or no other.
    """
    lines = [line.strip() for line in read_lines(path, "sentences")]
    while lines and not lines[-1]:
        lines.pop()
    sentences = [line for line in lines if line]
    if not sentences:
        raise InputError(f"File {path} has no sentences")
    if len(sentences) < len(lines) and not blank:
        raise InputError(
            f"Line {lines.index('') + 1} of {path} is blank; take it out, and what belongs to it "
            "in other files"
        )
    return sentences


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
        found = read_json(path)
        numbers = list(found.values())
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
