"""Tokenizers: of a tokenizer.json file, of single characters, and of texts of token numbers."""

import itertools
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import read_lines, read_text
from celosia.arch.packages import library
from celosia.generators.frontend.hugging_face_folder import read_json
from celosia.generators.frontend.pieces import (
    Pieces,
    clean,
    open_end_length,
    without_incomplete_end,
)

TOKENIZER_FILE = "tokenizer.json"
_DIGITS = 40
"""Most digits of a token's number; Python converts at most 4,300."""


class Tokenizer(ABC):
    """A tokenizer of an encoder's texts; it does not pad texts."""

    longest = 0
    """Longest text by the tokenizer's settings (tokens); 0 if these leave it open."""
    prompt = ""
    """Text before every text."""

    _library: Any
    """The object of the package ``tokenizers`` or ``transformers`` that makes the tokens."""

    @abstractmethod
    def _tokens(self, text: str, second: str | None, most: int) -> tuple[list[int], list[int]]:
        """Return the numbers and the types of at most ``most`` tokens."""

    def encode(self, text: str, most: int, second: str | None = None) -> NDArray[np.int64]:
        """Return the token numbers of a text or of a pair of texts, with special tokens.

        The result is [n], or [n, 2] with token types in column 1 if any type is not 0. The text is
        cut to ``most`` tokens; of a pair, the longer text is cut first. Raises :class:`InputError`
        if no token remains.
        """
        marks = self._library.num_special_tokens_to_add(second is not None)
        if most <= marks:
            raise InputError(f"A text takes more than {marks} tokens, but at most {most} may be")
        numbers, types = self._tokens(self.prompt + text, second, most)
        if not numbers:
            raise InputError(f"Text {text!r} has no tokens")
        columns = [numbers, types] if any(types) else numbers
        return np.array(columns, np.int64).T


class FileTokenizer(Tokenizer):
    """A tokenizer for encoders, read from a tokenizer.json file."""

    def __init__(self, path: Path):
        """Read a tokenizer.json file.

        Raises :class:`InputError` if the package ``tokenizers`` is not installed, or the file
        cannot be read or is no tokenizer.
        """
        self._library = read_tokenizer_file(path)
        self._cut = {"direction": (self._library.truncation or {}).get("direction", "right")}

    def _tokens(self, text: str, second: str | None, most: int) -> tuple[list[int], list[int]]:
        self._library.enable_truncation(max_length=most, **self._cut)
        encoding = _encoded(self._library, text, second)
        return encoding.ids, encoding.type_ids


class TokenizerLike(ABC):
    """Interface of language models' tokenizers: conversion of texts into tokens and back.

    A subclass converts texts to tokens, and a token to bytes. By default, a list of tokens is
    decoded as the UTF-8 text of all their bytes.
    """

    begin: int | None = None
    """Token from which a text without a prompt is generated; None if there is no such token."""
    ends: frozenset[int] = frozenset()
    """Set of tokens; a text ends after any of them."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the token numbers of a text.

        The list is never empty: :class:`InputError` is raised if the text has no token.
        """

    @abstractmethod
    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that a token adds to a text whose last token is ``before``.

        ``before`` is -1 if the text has no token yet.
        """

    def decode(self, tokens: list[int]) -> str:
        """Return the text of a list of tokens; the tokens in :attr:`ends` add no text."""
        pairs = itertools.pairwise([-1, *tokens])
        joined = b"".join(self.piece(t, before) for before, t in pairs if t not in self.ends)
        return joined.decode(errors="replace")

    def settled(self, tokens: list[int]) -> str:
        """Decode tokens, and return only the part of the text that later tokens cannot change.

        If the UTF-8 bytes of the last character are incomplete, this character is left out.
        """
        return without_incomplete_end(self.decode(tokens))


class TextTokenizer(TokenizerLike):
    """A tokenizer for language models, which continue a text token by token.

    The tokenizer is defined by a tokenizer.json file.
    """

    def __init__(
        self, tokenizer: Any, begin: int | None, ends: frozenset[int], *, cleaned: bool = False
    ):
        """Store a tokenizer of the package ``tokenizers``.

        A text begins as the tokenizer defines. ``begin`` is the first token of an empty text if the
        tokenizer itself has none; ``ends`` are the tokens that end a text. ``cleaned`` texts have
        no space before punctuation. Raises :class:`InputError` if no text has a token.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        encoding = _example(tokenizer)
        first = next(zip(encoding.ids, encoding.special_tokens_mask, strict=True), (0, 0))
        self.begin = int(first[0]) if first[1] else begin
        self.ends, self.cleaned = ends, cleaned
        self.split: bool = tokenizer.encode_special_tokens
        self._pieces = Pieces(tokenizer)

    def to_json(self) -> str:
        """Return this tokenizer as text, in the form of a tokenizer.json file."""
        return str(self._tokenizer.to_str(pretty=True))

    def encode(self, text: str) -> list[int]:
        """Return the token numbers of a text, or ``[begin]`` (the start token) if it has no tokens.

        Raises :class:`InputError` in two cases:

        - The text has no tokens, and ``begin`` is None.
        - The vocabulary has no token for a part of the text, and no token for unknown text.
        """
        tokens = list(_encoded(self._tokenizer, text).ids)
        return check_not_empty(tokens or ([] if self.begin is None else [self.begin]))

    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that a token adds to a text whose last token is ``before``.

        If the text has no token yet, ``before`` is -1. The bytes may be only a part of a character.
        Spaces before punctuation are kept, even if :meth:`decode` removes them.
        """
        if self._is_mark(token):
            return b""
        piece = self._pieces.piece(token)
        first = before < 0 or before == self.begin
        return piece.removeprefix(b" ") if first and self._pieces.stripped else piece

    def decode(self, tokens: list[int]) -> str:
        """Return the text of ``tokens`` without the start (``begin``) and end (``ends``) tokens."""
        text = self._text(tokens)
        return clean(text) if self.cleaned else text

    def settled(self, tokens: list[int]) -> str:
        """Decode tokens, and return only the part of the text that later tokens cannot change."""
        tokens = [token for token in tokens if not self._is_mark(token)]
        while tokens and self._pieces.is_open(tokens[-1]):
            del tokens[-1]
        text = without_incomplete_end(self._text(tokens))
        return clean(text[: len(text) - open_end_length(text)]) if self.cleaned else text

    def _text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode([each for each in tokens if not self._is_mark(each)]))

    def _is_mark(self, token: int) -> bool:
        return token == self.begin or token in self.ends


class NumberTokenizer(TokenizerLike):
    """A tokenizer for models that have no tokenizer file.

    A text is a list of token numbers, separated by spaces or commas.
    """

    def __init__(self, vocabulary: int, ends: frozenset[int] = frozenset()):
        """Store the vocabulary's size, and the tokens that end a text."""
        self._vocabulary, self.ends = vocabulary, ends

    def encode(self, text: str) -> list[int]:
        """Return a list of the token numbers that are written in a text, such as ``17 4 0``.

        Raises :class:`InputError` if the text has no number, has anything other than numbers, or
        has a number that is not in the vocabulary.
        """
        words = text.replace(",", " ").split()
        for word in words:
            wide = len(word) > _DIGITS
            if wide or not word.isdecimal() or int(word) >= self._vocabulary:
                shown = f"{word[:_DIGITS]}..." if wide else word
                raise InputError(
                    f"A model without a tokenizer takes token numbers from 0 to "
                    f"{self._vocabulary - 1}, not {shown!r}"
                )
        return check_not_empty([int(word) for word in words])

    def decode(self, tokens: list[int]) -> str:
        """Return the token numbers as a text with a space between two numbers, such as ``17 4 0``.

        The text includes the numbers of tokens that end a text.
        """
        return " ".join(map(str, tokens))

    def piece(self, token: int, before: int) -> bytes:
        """Return a token's number as bytes, preceded by a space unless the token is the first."""
        return f"{' ' if before >= 0 else ''}{token}".encode()


def _encoded(tokenizer: Any, text: str, second: str | None = None) -> Any:
    """Return the package's encoding of a text or of a pair of texts.

    Raises :class:`InputError` if a part of a text has no token.
    """
    try:
        return tokenizer.encode(text, second)
    except Exception as error:  # the package raises Exception itself
        raise InputError(f"Text {text!r} has no tokens: {error}") from error


def _example(tokenizer: Any) -> Any:
    """Return the encoding of a short text that has at least one token."""
    for text in ("a", *sorted(tokenizer.get_vocab(with_added_tokens=False))):
        with suppress(Exception):
            return tokenizer.encode(text)
    raise InputError("The tokenizer's vocabulary has no token for any text")


def check_not_empty(tokens: list[int]) -> list[int]:
    """Return ``tokens`` unchanged; raise :class:`InputError` if the list is empty."""
    if not tokens:
        raise InputError("The model has no token that begins a text; give it one with --prompt")
    return tokens


def read_tokenizer_file(path: Path) -> Any:
    """Return the tokenizer in a file as an object of the package ``tokenizers``, without padding.

    Raises :class:`InputError` if that package is not installed, or if the file cannot be read or
    contains no tokenizer.
    """
    tokenizers, content = (
        library("tokenizers", "Texts need", "tokenizers", "text"),
        read_text(path, "tokenizer"),
    )
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:
        raise InputError(f"Tokenizer {path} is not one: {error}") from error
    tokenizer.no_padding()
    return tokenizer


def read_sentences(path: Path, *, blank: bool = False) -> list[str]:
    """Return the lines of a text file as a list, without blank lines.

    If ``blank`` is false, blank lines are allowed only at the end of the file. Raises
    :class:`InputError` if another line is blank, if all lines are blank, or if the file cannot be
    read.
    """
    lines = read_lines(path, "sentences")
    while lines and not lines[-1].strip():
        lines.pop()
    sentences = [line for line in lines if line.strip()]
    if not sentences:
        raise InputError(f"File {path} has no sentences")
    if len(sentences) < len(lines) and not blank:
        place = next(number for number, line in enumerate(lines, 1) if not line.strip())
        raise InputError(
            f"Line {place} of {path} is blank; remove it, and its entries in other files"
        )
    return sentences


class CharacterTokenizer(TokenizerLike):
    """A tokenizer with one token for each character.

    Each text begins with the token of a line break; the same token ends a generated text.
    """

    begin: int

    def __init__(self, path: Path, vocabulary: int):
        """Read a JSON object that gives each of ``vocabulary`` characters its number.

        Raises :class:`InputError` if the file cannot be read or is something else.
        """
        characters = read_json(path)
        numbers = list(characters.values())
        if sorted(map(str, numbers)) != sorted(map(str, range(vocabulary))):
            raise InputError(f"Characters {path} are not numbered from 0 to {vocabulary - 1}")
        if not all(len(character) == 1 for character in characters) or "\n" not in characters:
            raise InputError(f"Characters {path} are not single ones with the line's end")
        self._numbers: dict[str, int] = characters
        self._characters: dict[int, str] = {number: text for text, number in characters.items()}
        self.begin = characters["\n"]
        self.ends = frozenset({self.begin})

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, preceded by the token of a line break.

        Raises :class:`InputError` if a character has no token.
        """
        for character in text:
            if character not in self._numbers:
                raise InputError(f"Character {character!r} has no token")
        return [self.begin, *(self._numbers[character] for character in text)]

    def piece(self, token: int, before: int) -> bytes:
        """Return the UTF-8 bytes of a token's character.

        ``before``, the text's previous token, is a parameter of every tokenizer, but has no effect
        here.
        """
        return self._characters[token].encode()
