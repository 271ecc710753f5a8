"""Calibration of a decoder on texts: texts of the caller, or texts that the model samples."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.quantize.calibrate import Calibration, Calibrator, Progress, calibrate
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.policy import LEAST_ERROR
from celosia.generators.reference.cache import KvCache


def calibration_texts(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    options: Quantization,
    progress: Progress | None = None,
    texts: Sequence[Sequence[int]] | None = None,
) -> Calibration:
    """Return the calibration of a language model: ranges and sample rows of its tensors.

    - Decoder: ``texts`` are the token lists on which it runs. None: it samples texts, which begin
      with the token ``begin``.
    - Encoder-decoder: ``texts`` are its sources, for which it generates outputs. None: the sources
      are random.

    Raises :class:`InputError` for invalid texts.
    """
    length, seed, sources = min(options.length, model.positions), options.seed, None
    if model.source_layers:
        sources = texts or random_sources(model, options.texts, seed)
    elif texts is not None:
        return given_texts(model, weights, texts, length, progress)
    asked = {"count": options.texts, "length": length, "seed": seed}
    return sample_texts(model, weights, begin, **asked, sources=sources, progress=progress)


def sample_texts(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    *,
    length: int,
    seed: int,
    count: int = 1,
    sources: Sequence[Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Return a language model's calibration on texts that the model itself samples.

    A decoder samples ``count`` texts, each beginning with the token ``begin`` (None: a random
    token). An encoder-decoder samples an output for each token list in ``sources``. Raises
    :class:`InputError` if an argument is invalid.
    """
    count = count if sources is None else len(sources)
    if sources is not None and not count:
        raise InputError("Calibration needs at least one source")
    for name, value in (("count", count), ("length", length)):
        if value < 1:
            raise InputError(f"Sampled texts' {name} must be positive, not {value}")
    rng, policy = np.random.default_rng(seed), LEAST_ERROR
    tokens = np.full((count, length), begin or 0, np.int64)
    if sources is None:
        if begin is None:
            tokens[:, 0] = rng.integers(0, model.vocabulary, count)
        calibrator = Calibrator(model, weights, count, length)
        _draw(calibrator, tokens, KvCache(), rng, progress=progress)
        return calibrator.calibration(tokens=calibrator.rows.chosen(tokens), policy=policy)
    lengths = [len(source) for source in sources]
    calibrator = Calibrator(model, weights, count, max(length, *lengths))
    tokens[:] = model.start
    for done, source in enumerate(sources):
        cache, own = KvCache(), tokens[done : done + 1]
        encoded = calibrator.run(np.array([source], np.int64), cache, source=True)
        _draw(calibrator, own, cache, rng, first=done, encoded=encoded)
        if progress is not None:
            progress(done + 1, count)
    rows = calibrator.rows
    answered = {"tokens": rows.chosen(tokens), "sources": rows.lengths(lengths)}
    return calibrator.calibration(**answered, policy=policy)


def _draw(
    calibrator: Calibrator,
    tokens: NDArray[np.int64],
    cache: KvCache,
    rng: np.random.Generator,
    *,
    first: int = 0,
    encoded: Mapping[str, Floats] = MappingProxyType({}),
    progress: Progress | None = None,
) -> None:
    """Draw texts [count, length] in place from their first tokens, and keep their rows.

    The number of the first text is ``first``. ``encoded`` has the tensors of its source.
    """
    length = tokens.shape[1]
    for place in range(length):
        tensors = calibrator.run(tokens[:, place : place + 1], cache)
        # Both have a tensor of the host's tokens, for which no step is searched.
        calibrator.rows.add(tensors if place else {**encoded, **tensors}, first, place)
        if place + 1 < length:
            # The largest of logits with Gumbel noise is a draw from their softmax.
            logits = tensors["logits"][:, 0]
            noise = rng.gumbel(size=logits.shape)
            tokens[:, place + 1] = np.argmax(logits + noise, axis=1)
        if progress is not None:
            progress(place + 1, length)


def random_sources(model: TextDescription, count: int, seed: int) -> list[list[int]]:
    """Return ``count`` sources: lists of random tokens, each of a random length."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, model.source_positions + 1, count)
    return [rng.integers(0, model.vocabulary, length).tolist() for length in lengths]


def given_texts(
    model: TextDescription,
    weights: Weights,
    texts: Sequence[Sequence[int]],
    length: int,
    progress: Progress | None = None,
) -> Calibration:
    """Return the calibration of a decoder on ``texts``, lists of token numbers.

    All texts get the length of the longest one, at most ``length`` tokens; shorter texts are
    extended by the texts after them. Raises :class:`InputError` if there is no text, or a text is
    empty or has an unknown token.
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
    tokens = np.array(rows)
    return calibrate(model, weights, tokens, 100.0, progress, None, LEAST_ERROR)
