"""Checks that the input of a language model has an acceptable number of tokens.

The input is a prompt or, for an encoder-decoder, a source: the text that the encoder reads.
"""

from collections.abc import Sequence
from typing import Protocol

from celosia.arch.errors import InputError


class Lengths(Protocol):
    """Name, vocabulary size and longest encoder input (tokens) of a language model or a program."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens in the vocabulary."""

    @property
    def source_positions(self) -> int:
        """Largest number of tokens that the encoder reads; 0 for a decoder without an encoder."""


def check_length(model: Lengths, tokens: Sequence[int], steps: int, places: int) -> None:
    """Raise :class:`InputError` if a language model cannot process the input ``tokens``.

    An encoder-decoder takes 1 to ``source_positions`` tokens. A decoder's prompt and ``steps - 1``
    generated tokens must fit ``places`` positions. All tokens must be in the vocabulary.
    """
    wrong = next((token for token in tokens if token >= model.vocabulary), None)
    if wrong is not None:
        raise InputError(
            f"A text has the token {wrong}, but model {model.name} has {model.vocabulary}; give "
            "the tokenizer that it was trained with"
        )
    count, most = len(tokens), model.source_positions
    if most and not 1 <= count <= most:
        raise InputError(f"Model {model.name} takes sources of 1 to {most} tokens, not {count}")
    if not most and count + steps - 1 > places:
        raise InputError(
            f"A prompt of {count} tokens and {steps} steps need more than the {places} places of "
            f"model {model.name}"
        )
