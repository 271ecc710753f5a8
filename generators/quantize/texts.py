"""Calibration texts of a decoder, and the values of the decoder's tensors over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.refusals import check_finite, check_tensor
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import encode, forward

KEPT_BYTES = 1 << 30
"""Memory for the tensors of texts (bytes); for larger models only some texts, or places, are
kept."""
_NOT_KEPT = ("scores", "probabilities", "output")


@dataclass(frozen=True)
class SampledTexts:
    """Calibration texts, sampled or given, and tensor values up to :data:`KEPT_BYTES`."""

    tokens: NDArray[np.int64]
    """[count, length]."""
    tensors: dict[str, Floats]
    """Each tensor of the model, [count * length, columns], one text after another, by name as in
    :func:`celosia.generators.reference.floats.forward`; scores and probabilities are left out."""
    largest: dict[str, float]
    """The largest magnitude of each tensor over all texts, including those that are not kept."""
    sources: tuple[int, ...] = ()
    """Tokens of the source of each text, whose tensors are [all of them, columns]."""


class _Rows:
    """Collects the tensors of some texts, and the largest magnitudes of all texts.

    The kept texts are spread evenly over all. If there is no room for one text, its first places
    are kept.
    """

    def __init__(self, model: TextDescription, tokens: NDArray[np.int64]):
        """Store the texts' tokens, [count, length], which may still change."""
        self._model, self._tokens = model, tokens
        self._texts: NDArray[np.int64] = np.arange(0)
        self._kept: dict[str, Floats] = {}
        self.largest: dict[str, float] = {}

    def add(self, tensors: Mapping[str, Floats], first: int, place: int) -> None:
        """Add tensors [texts, places, columns] that begin at text ``first`` and place ``place``."""
        tensors = {name: rows for name, rows in tensors.items() if not name.endswith(_NOT_KEPT)}
        if not self._kept:
            self._allocate(tensors)
        for name, rows in tensors.items():
            check_tensor(self._model, name, rows)
            _note(self.largest, name, rows)
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

    def texts(self) -> SampledTexts:
        """Return the texts whose tensors are kept."""
        places = next(iter(self._kept.values())).shape[1]
        tensors = {name: rows.reshape(-1, rows.shape[2]) for name, rows in self._kept.items()}
        return SampledTexts(self._tokens[self._texts, :places], tensors, self.largest)


def _note(largest: dict[str, float], name: str, rows: Floats) -> None:
    largest[name] = max(largest.get(name, 0.0), float(np.abs(rows).max()))


def calibration_texts(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    options: Quantization,
    progress: Progress | None = None,
    texts: Sequence[Sequence[int]] | None = None,
) -> SampledTexts:
    """Return calibration texts: ``texts``, or texts sampled from the model.

    For an encoder-decoder the result is answers to sources, which are ``texts`` or random. Raises
    :class:`InputError` as :func:`sample_answers`, :func:`given_texts` and :func:`sample_texts`.
    """
    check_finite(model, weights)
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
) -> SampledTexts:
    """Return ``count`` texts of ``length`` tokens, sampled from the model after ``begin``.

    If ``begin`` is None, each text begins with another random token. Each next token is drawn from
    the model's distribution, at temperature 1. ``progress`` receives the number of positions done.
    Raises :class:`InputError` if count or length is not positive.
    """
    for name, value in (("count", count), ("length", length)):
        if value < 1:
            raise InputError(f"Sampled texts' {name} must be positive, not {value}")
    rng = np.random.default_rng(seed)
    tokens = np.full((count, length), begin or 0, np.int64)
    if begin is None:
        tokens[:, 0] = rng.integers(0, model.vocabulary, count)
    return _drawn(model, weights, tokens, KvCache(), rng, progress)


def _drawn(
    model: TextDescription,
    weights: Weights,
    tokens: NDArray[np.int64],
    cache: KvCache,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> SampledTexts:
    """Draw texts [count, length] from their first tokens."""
    length, rows = tokens.shape[1], _Rows(model, tokens)
    for place in range(length):
        with np.errstate(all="ignore"):
            tensors = forward(model, weights, tokens[:, place : place + 1], cache)
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
    """Return ``count`` sources of random tokens and random lengths."""
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
) -> SampledTexts:
    """Return answers of ``length`` tokens, sampled from the model for each source.

    ``progress`` receives the number of sources done. Raises :class:`InputError` if there is no
    source or a source is invalid.
    """
    if not sources:
        raise InputError("Calibration needs at least one source")
    rng = np.random.default_rng(seed)
    texts = list[NDArray[np.int64]]()
    parts, largest, kept = dict[str, list[Floats]](), dict[str, float](), 0
    for done, source in enumerate(sources):
        cache = KvCache()
        with np.errstate(all="ignore"):
            encoded = encode(model, weights, np.array([source], np.int64), cache)
        for name, tensor in encoded.items():
            check_tensor(model, name, tensor)
        tensors = {n: rows[0] for n, rows in encoded.items() if not n.endswith(_NOT_KEPT)}
        tokens = np.full((1, length), model.start, np.int64)
        # Both have a tensor of the host's tokens, which no step is found for.
        tensors |= (drawn := _drawn(model, weights, tokens, cache, rng)).tensors
        for name, tensor in tensors.items():
            _note(largest, name, tensor)
        largest |= {name: max(size, largest[name]) for name, size in drawn.largest.items()}
        kept += sum(tensor.nbytes for tensor in tensors.values())
        if not texts or (kept <= KEPT_BYTES and len(texts) == done):
            for name, tensor in tensors.items():
                parts.setdefault(name, []).append(tensor)
            texts.append(drawn.tokens)
        if progress is not None:
            progress(done + 1, len(sources))
    joined = {name: np.concatenate(parts.pop(name)) for name in [*parts]}
    lengths = tuple(len(source) for source in sources[: len(texts)])
    return SampledTexts(np.concatenate(texts), joined, largest, lengths)


def given_texts(
    model: TextDescription,
    weights: Weights,
    texts: Sequence[Sequence[int]],
    length: int,
    progress: Progress | None = None,
) -> SampledTexts:
    """Return the tensor values over given texts, lists of token numbers.

    All texts become as long as the longest text, but at most ``length`` tokens. Longer texts are
    cut, and shorter texts are continued with the following texts. ``progress`` receives the number
    of texts done.

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
    kept = _Rows(model, tokens)
    for done, each in enumerate(tokens):
        with np.errstate(all="ignore"):
            tensors = forward(model, weights, each[None])
        kept.add(tensors, done, 0)
        if progress is not None:
            progress(done + 1, len(tokens))
    return kept.texts()
