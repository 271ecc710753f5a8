"""Conversion of single tokens to the bytes that they append to a decoded text."""

import functools
import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CLEANED = {
    **{f" {mark}": mark for mark in ".?!,"},
    " ' ": "'",
    **{f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")},
}
"""Places of a text that become shorter if it is cleaned, in this order."""
_BEGINNINGS = sorted({place[:end] for place in _CLEANED for end in range(1, len(place))}, key=len)
"""Beginnings of these places, the shortest first."""


def without_incomplete_end(text: str) -> str:
    """Return a decoded text without the replacement characters (U+FFFD) at its end.

    Decoding puts them at the end if the UTF-8 bytes of the last character are not yet complete.
    """
    return text.rstrip(REPLACEMENT)


def clean(text: str) -> str:
    """Return a text without spaces before punctuation and before contractions such as ``n't``."""
    for place, shorter in _CLEANED.items():
        text = text.replace(place, shorter)
    return text


def open_end_length(text: str) -> int:
    """Return the number of characters at a text's end that :func:`clean` may still change.

    The characters may change if text is appended. For example, the result is 1 for ``"word "``: if
    a comma follows, the space is removed.
    """
    kept = text
    while begun := next((place for place in _BEGINNINGS if kept.endswith(place)), ""):
        # The characters before may be the beginning of another place, as in ``" ' n"``.
        kept = kept.removesuffix(begun)
    return len(text) - len(kept)


class Pieces:
    """The bytes that each token of a tokenizer appends to a text.

    The tokenizer is an object of the package ``tokenizers``.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        kinds = str(tokenizer.decoder.__getstate__().decode()) if tokenizer.decoder else ""
        self._alphabet = _byte_level() if '"ByteLevel"' in kinds else {}
        self._fallback = '"ByteFallback"' in kinds
        added = tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}
        self._anchor = -1

    @functools.cached_property
    def stripped(self) -> bool:
        """True if decoding removes the leading space of a text's first token."""
        if self._alphabet:
            return False
        space = next((n for n in self._ordinary() if self.piece(n).startswith(b" ")), -1)
        return space >= 0 and not self._decode(space).startswith(" ")

    def is_byte(self, token: int) -> bool:
        """Return whether a token stands for a single byte, as ``<0x0A>`` does.

        Several such tokens may be needed for one character.
        """
        return self._fallback and bool(_BYTE.fullmatch(self._tokenizer.id_to_token(token) or ""))

    def is_open(self, token: int) -> bool:
        """Return whether a text that ends with ``token`` may end in an incomplete character.

        The result is true if the token stands for a single byte, or if decoding skips the token.
        Decoding skips special tokens, and numbers outside the vocabulary.
        """
        unknown = self._tokenizer.id_to_token(token) is None
        return unknown or token in self._special or self.is_byte(token)

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token appends to a text that is not empty.

        The result is empty if the token is a special token, or has no entry in the vocabulary.
        """
        text = self._tokenizer.id_to_token(token)
        if text is None or token in self._special:
            return b""
        if self._alphabet:
            known = all(character in self._alphabet for character in text)
            return bytes(map(self._alphabet.__getitem__, text)) if known else text.encode()
        if self.is_byte(token):
            return bytes.fromhex(text[3:5])
        if self._anchor < 0:
            self._anchor = next((n for n in self._ordinary() if self._is_anchor(n)), token)
        return self._decode(self._anchor, token)[len(self._decode(self._anchor)) :].encode()

    def _ordinary(self) -> range:
        return range(self._tokenizer.get_vocab_size())

    def _is_anchor(self, token: int) -> bool:
        """Return whether a token is a word that a following token does not change."""
        if token in self._special or self.is_byte(token):
            return False
        text = self._decode(token)
        return text.isalnum() and self._decode(token, token).startswith(text)

    def _decode(self, *tokens: int) -> str:
        return str(self._tokenizer.decode([*tokens]))


def _byte_level() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Printable bytes stand for themselves, the others for the characters from 256 on, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }
