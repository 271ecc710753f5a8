"""Tokenizers that are read from Hugging Face folders, for encoders and for language models.

A Sentence Transformers folder also has settings for the encoder's texts, which its tokenizer uses:
a prompt to put before each text, conversion to lower case, and the largest number of tokens.
"""

from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.packages import library
from celosia.generators.frontend.processors import holds_tokenizer, read_tokenizer
from celosia.generators.frontend.sentence_folder import SentenceFolder
from celosia.generators.frontend.tokenizer import (
    TOKENIZER_FILE,
    FileTokenizer,
    TextTokenizer,
    Tokenizer,
)

_UNBOUNDED = 1 << 30
"""Lengths from which on a tokenizer's longest text is unlimited."""


class FolderTokenizer(Tokenizer):
    """A tokenizer from a Hugging Face folder, for an encoder's texts."""

    def __init__(self, folder: Path, sentences: SentenceFolder):
        """Read the tokenizer of a folder.

        Raises :class:`InputError` as :func:`celosia.generators.frontend.processors.read_tokenizer`,
        or if the longest text that the tokenizer's settings allow is no positive number of tokens.
        """
        self._library = read_tokenizer(folder)
        self.prompt = sentences.prompt
        if sentences.lower:
            self._lower(folder)
        stated = self._library.model_max_length
        if type(stated) not in (int, float) or not stated >= 1:
            raise InputError(
                f"Setting 'model_max_length' in {folder / 'tokenizer_config.json'} must be a "
                f"positive number or null, not {stated!r}"
            )
        own = int(min(stated, _UNBOUNDED))
        self.longest = sentences.longest or (own if own < _UNBOUNDED else 0)

    def _lower(self, folder: Path) -> None:
        """Make texts lower-case before anything else."""
        if not self._library.is_fast:
            raise InputError(
                f"Setting 'do_lower_case' of the sentences of folder {folder} cannot be kept for "
                f"the tokenizer {type(self._library).__name__}; take it out there, and set it in "
                "tokenizer_config.json"
            )
        kinds = library("tokenizers.normalizers", "Texts need", "tokenizers", "text")
        backend = self._library.backend_tokenizer
        own = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = kinds.Sequence([kinds.Lowercase(), *own])

    def _tokens(self, text: str, second: str | None, most: int) -> tuple[list[int], list[int]]:
        try:
            encoding = self._library(text, second, truncation=True, max_length=most)
        except Exception as error:
            raise InputError(f"Text {text!r} has no tokens: {error}") from error
        return encoding["input_ids"], encoding.get("token_type_ids") or []


def folder_tokenizer(folder: Path, sentences: SentenceFolder) -> Tokenizer | None:
    """Return the tokenizer of an encoder's Hugging Face folder, or None if it has no tokenizer.

    ``sentences`` has the folder's settings of Sentence Transformers. Raises :class:`InputError` if
    a tokenizer file or setting is invalid, or if a package that reads it is not installed.
    """
    path = folder / TOKENIZER_FILE
    if holds_tokenizer(folder) or (path.is_file() and sentences != SentenceFolder()):
        return FolderTokenizer(folder, sentences)
    return FileTokenizer(path) if path.is_file() else None


def read_text_tokenizer(folder: Path, begin: int | None, ends: frozenset[int]) -> TextTokenizer:
    """Return the tokenizer of a language model from its Hugging Face folder.

    ``ends`` are the tokens that end a text. ``begin`` is the token of an empty text if the
    tokenizer itself has none. Raises :class:`InputError` if the tokenizer cannot be read, or the
    package ``tokenizers`` does not support it.
    """
    tokenizer = read_tokenizer(folder)
    if not tokenizer.is_fast:
        raise InputError(
            f"Tokenizer {type(tokenizer).__name__} of folder {folder} cannot be a tokenizer.json, "
            "as language models need it; convert it to PreTrainedTokenizerFast and save that there"
        )
    backend = tokenizer.backend_tokenizer
    plain = type(backend.model).__name__ == "BPE"
    anyway = tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output
    cleaned = tokenizer.clean_up_tokenization_spaces and (anyway or not plain)
    return TextTokenizer(backend, begin, ends, cleaned=bool(cleaned))
