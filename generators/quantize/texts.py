"""Calibration texts of a decoder, and the values of the decoder's tensors for these texts."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.quantize.calibrate import BY_PAIRS, Calibration, Observer, Progress
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.policy import LEAST_ERROR
from celosia.generators.reference.cache import KvCache

KEPT_BYTES = 1 << 30
"""Memory for the tensors of texts (bytes); for larger models only some texts, or places, are
kept."""


class _Rows:
    """Collects the tensors of some texts.

    The kept texts are spread evenly over all. If there is no room for one text, its first places
    are kept.
    """

    def __init__(self, tokens: NDArray[np.int64]):
        """Store the texts' tokens, [count, length], which may still change."""
        self._tokens = tokens
        self._texts: NDArray[np.int64] = np.arange(0)
        self._kept: dict[str, Floats] = {}

    def add(self, tensors: Mapping[str, Floats], first: int, place: int) -> None:
        """Add tensors [texts, places, columns] that begin at text ``first`` and place ``place``."""
        tensors = _kept_ones(tensors)
        if not self._kept:
            self._allocate(tensors)
        for name, rows in tensors.items():
            kept = self._kept[name]
            places = min(rows.shape[1], kept.shape[1] - place)
            if places > 0:
                own = (self._texts >= first) & (self._texts < first + len(rows))
                kept_rows = rows[self._texts[own] - first, :places]
                kept[own, place : place + places] = kept_rows

    def _allocate(self, tensors: Mapping[str, Floats]) -> None:
        count, length = self._tokens.shape
        size = sum(rows[0, 0].nbytes for rows in tensors.values())
        most = max(1, min(count, KEPT_BYTES // (size * length)))
        places = max(1, min(length, KEPT_BYTES // (size * most)))
        self._texts = np.arange(most) * count // most
        for name, rows in tensors.items():
            self._kept[name] = np.empty((most, places, rows.shape[2]))

    def texts(self) -> tuple[NDArray[np.int64], dict[str, Floats]]:
        """Return the texts whose tensors are kept, [count, length], and the tensors' rows."""
        places = next(iter(self._kept.values())).shape[1]
        rows = {name: rows.reshape(-1, rows.shape[2]) for name, rows in self._kept.items()}
        return self._tokens[self._texts, :places], rows


def _kept_ones(tensors: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the tensors with a row for each token, each once."""
    other = (*BY_PAIRS, "output")
    return {name: rows for name, rows in tensors.items() if not name.endswith(other)}


def calibration_texts(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    options: Quantization,
    progress: Progress | None = None,
    texts: Sequence[Sequence[int]] | None = None,
) -> Calibration:
    """Return the calibration of a decoder: ranges and rows of its tensors on calibration texts.

    ``texts`` are lists of token numbers. If ``texts`` is None, the model samples texts. Sampled
    texts begin with the token ``begin``, or with a random token if ``begin`` is None. For an
    encoder-decoder, ``texts`` are sources (the encoder's inputs), and the decoder samples an answer
    to each source. If ``texts`` is None, the sources are random. ``options`` sets the number of
    texts or sources to sample, the length of texts, and the seed of random numbers.

    Raises :class:`InputError` in the cases of :func:`sample_answers`, :func:`given_texts` and
    :func:`sample_texts`.
    """
    length, seed = min(options.length, model.positions), options.seed
    if model.source_layers:
        sources = texts or random_sources(model, options.texts, seed)
        return sample_answers(model, weights, sources, length=length, seed=seed, progress=progress)
    if texts is not None:
        return given_texts(model, weights, texts, length, progress)
    count = options.texts
    return sample_texts(
        model, weights, begin, count=count, length=length, seed=seed, progress=progress
    )


def sample_texts(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    *,
    count: int,
    length: int,
    seed: int,
    progress: Progress | None = None,
) -> Calibration:
    """Return the calibration of a decoder for ``count`` texts that are sampled from the model.

    A text has ``length`` tokens. All texts begin with the token ``begin``; if it is None, each
    begins with a random token. Each next token is drawn from the model's distribution, at
    temperature 1. ``progress`` receives the number of processed positions, and ``length``. Raises
    :class:`InputError` if ``count`` or ``length`` is not positive.
    """
    for name, value in (("count", count), ("length", length)):
        if value < 1:
            raise InputError(f"Sampled texts' {name} must be positive, not {value}")
    rng = np.random.default_rng(seed)
    tokens = np.full((count, length), begin or 0, np.int64)
    if begin is None:
        tokens[:, 0] = rng.integers(0, model.vocabulary, count)
    observer = Observer(model, weights)
    texts, rows = _drawn(observer, tokens, KvCache(), rng, progress)
    return observer.calibration(rows, tokens=texts, policy=LEAST_ERROR)


def _drawn(
    observer: Observer,
    tokens: NDArray[np.int64],
    cache: KvCache,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], dict[str, Floats]]:
    """Draw texts [count, length] from their first tokens; return those kept, and their rows."""
    length, rows = tokens.shape[1], _Rows(tokens)
    for place in range(length):
        tensors = observer.run(tokens[:, place : place + 1], cache)
        rows.add(tensors, 0, place)
        if place + 1 < length:
            # The largest of logits with Gumbel noise is a draw from their softmax.
            logits = tensors["logits"][:, 0]
            noise = rng.gumbel(size=logits.shape)
            tokens[:, place + 1] = np.argmax(logits + noise, axis=1)
        if progress is not None:
            progress(place + 1, length)
    return rows.texts()


def random_sources(model: TextDescription, count: int, seed: int) -> list[list[int]]:
    """Return ``count`` sources: each is a list of random tokens, of a random length."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, model.source_positions + 1, count)
    return [rng.integers(0, model.vocabulary, length).tolist() for length in lengths]


def sample_answers(
    model: TextDescription,
    weights: Weights,
    sources: Sequence[Sequence[int]],
    *,
    length: int,
    seed: int,
    progress: Progress | None = None,
) -> Calibration:
    """Return the calibration of an encoder-decoder that answers each of ``sources``.

    The answers have ``length`` tokens, and are sampled from the model. ``progress`` is called with
    the number of answered sources and the number of all sources. Raises :class:`InputError` if
    there is no source, or if a source is empty, is too long or has a token that is not in the
    vocabulary.
    """
    if not sources:
        raise InputError("Calibration needs at least one source")
    rng = np.random.default_rng(seed)
    observer, texts = Observer(model, weights), list[NDArray[np.int64]]()
    parts, kept = dict[str, list[Floats]](), 0
    for done, source in enumerate(sources):
        cache = KvCache()
        encoded = observer.run(np.array([source], np.int64), cache, source=True)
        tokens, drawn = _drawn(observer, np.full((1, length), model.start, np.int64), cache, rng)
        # Both have a tensor of the host's tokens, which no step is found for.
        rows = {name: of_text[0] for name, of_text in _kept_ones(encoded).items()} | drawn
        kept += sum(of_text.nbytes for of_text in rows.values())
        if not texts or (kept <= KEPT_BYTES and len(texts) == done):
            for name, of_text in rows.items():
                parts.setdefault(name, []).append(of_text)
            texts.append(tokens)
        if progress is not None:
            progress(done + 1, len(sources))
    joined = {name: np.concatenate(parts.pop(name)) for name in [*parts]}
    lengths = tuple(len(source) for source in sources[: len(texts)])
    return observer.calibration(
        joined, tokens=np.concatenate(texts), sources=lengths, policy=LEAST_ERROR
    )


def given_texts(
    model: TextDescription,
    weights: Weights,
    texts: Sequence[Sequence[int]],
    length: int,
    progress: Progress | None = None,
) -> Calibration:
    """Return the calibration of a decoder for ``texts``, which are lists of token numbers.

    All texts get the same length: the length of the longest text, but at most ``length`` tokens. A
    longer text is cut at the end. A shorter text is extended by the tokens of the texts that follow
    it in the list; the first text follows the last. ``progress`` is called with the number of
    processed texts and the number of all texts.

    Raises :class:`InputError` if there is no text, a text is empty, or a token is not in the
    model's vocabulary.
    """
    if not texts or not all(map(len, texts)):
        raise InputError("Calibration needs at least one text, and none of them empty")
    most = min(max(map(len, texts)), length)
    rows = []
    for first in range(len(texts)):
        row: list[int] = []
        place = first
        while len(row) < most:
            row += texts[place % len(texts)]
            place += 1
        rows.append(row[:most])
    tokens = np.array(rows, np.int64)
    kept, observer = _Rows(tokens), Observer(model, weights)
    for done, each in enumerate(tokens):
        kept.add(observer.run(each[None]), done, 0)
        if progress is not None:
            progress(done + 1, len(tokens))
    texts_kept, kept_rows = kept.texts()
    return observer.calibration(kept_rows, tokens=texts_kept, policy=LEAST_ERROR)
