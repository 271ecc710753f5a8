"""Perplexity of a language model on texts, in floating point and in integers."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import read_text
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.quantized import Decoder
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate

SEPARATOR = "<|endoftext|>"
"""Separator of the texts of a file."""
ASCII = {
    ord(character): plain
    for plain, characters in {
        "'": "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}",
        '"': "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}",
        "-": "\N{EN DASH}\N{EM DASH}",
    }.items()
    for character in characters
}
"""Typographic quotes and dashes, which small vocabularies lack, and their ASCII replacements."""
CHUNK = 64
"""Tokens decoded at once."""

Progress = Callable[[int, int], None]
"""Takes the number of tokens done, and of all tokens."""


@dataclass(frozen=True)
class Foresight:
    """Losses of a quantized language model and of its float model on texts (nats per token).

    The field ``agreement`` is the share of positions at which both models predict the same token.
    """

    nll: float
    """Negative log-likelihood of a token (natural units)."""
    tokens: int
    """Tokens that were predicted: all but the first of each text."""
    float_nll: float
    """The float model's negative log-likelihood of a token (natural units)."""
    agreement: float
    """Share of positions at which the likeliest token is the float model's."""
    cut: int
    """Texts with more tokens than the model has positions."""

    @property
    def perplexity(self) -> float:
        """Perplexity of the quantized model: e to the power of its loss (nats per token)."""
        return math.exp(self.nll)


def read_texts(path: Path, *, verbatim: bool = False) -> list[str]:
    """Return the texts of a file, which are separated by ``<|endoftext|>``, without empty ones.

    Typographic quotes and dashes become ASCII characters, unless ``verbatim`` is true. Raises
    :class:`InputError` if the file cannot be read or has no text.
    """
    content = read_text(path, "text")
    if not verbatim:
        content = content.translate(ASCII)
    texts = [text.strip() for text in content.split(SEPARATOR)]
    if not any(texts):
        raise InputError(f"File {path} has no text")
    return [text for text in texts if text]


def measure(
    source: TextSource,
    decoder: Decoder | None,
    texts: Sequence[str],
    *,
    slots: int = 0,
    sinks: int = 0,
    progress: Progress | None = None,
) -> Foresight:
    """Return the losses of a quantized language model and of its float model on ``texts``.

    ``decoder`` is the quantized model. If ``decoder`` is None, both losses are the float model's.
    If ``slots`` is not 0, the quantized model attends to the first ``sinks`` and the latest ``slots
    - sinks`` tokens only. Raises :class:`InputError` if no text has two tokens.
    """
    source.description.refuse_source("Perplexity")
    most = source.description.positions
    whole = [source.tokenizer.encode(text) for text in texts]
    cut = sum(len(tokens) > most for tokens in whole)
    numbers = [np.array(tokens[:most]) for tokens in whole]
    total = sum(len(tokens) - 1 for tokens in numbers)
    if total < 1:
        raise InputError("Texts have no token to foresee")
    losses, exact_losses, alike, done = 0.0, 0.0, 0, 0
    for tokens in numbers:
        exact_cache, cache = KvCache(), KvCache(slots, sinks)
        for part, targets in _chunks(tokens):
            exact = forward(source.description, source.weights, part[None], exact_cache)["logits"][
                0
            ]
            logits = exact
            if decoder is not None:
                logits = evaluate(decoder, part, cache)["logits"] * decoder.output.scale
            losses += _loss(logits, targets)
            exact_losses += _loss(exact, targets)
            alike += int(np.sum(logits.argmax(axis=1) == exact.argmax(axis=1)))
            done += len(targets)
            if progress is not None:
                progress(done, total)
    return Foresight(losses / total, total, exact_losses / total, alike / total, cut)


def _chunks(
    tokens: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]]:
    """Yield chunks of tokens, each with the tokens that follow its tokens."""
    for first in range(0, len(tokens) - 1, CHUNK):
        last = min(first + CHUNK, len(tokens) - 1)
        yield tokens[first:last], tokens[first + 1 : last + 1]


def _loss(logits: Floats, targets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """Return the sum of the negative log-probabilities of the targets."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    sums = np.log(np.exp(shifted).sum(axis=1))
    return float(np.sum(sums - shifted[np.arange(len(targets)), targets]))
