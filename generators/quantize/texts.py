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
    """Run a decoder's float model on texts; return the data from which quantization chooses scales.

    The result (:class:`Calibration`) has the range of each tensor's values on all texts. It also
    has sample rows of some tensors; a row has a tensor's values for one token.

    For a model without an encoder:

    - If ``texts`` is given: the model runs on these texts, which are lists of token numbers.
    - If ``texts`` is None: the model samples texts. Each text begins with the token ``begin``, or
      with a random token if ``begin`` is None.

    For an encoder-decoder, ``texts`` are sources (the encoder's inputs), and the decoder samples an
    answer to each source. If ``texts`` is None, the sources are random.

    ``options`` sets the largest length of texts. For sampled texts and random sources, it also sets
    their number and the seed of random numbers.

    Raises :class:`InputError` in the cases of :func:`given_texts` and :func:`sample_texts`.
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
    """Sample texts from a decoder; return the ranges and sample rows of the decoder's tensors.

    The result (:class:`Calibration`) has the range of each tensor's values on these texts. It also
    has rows of the tensors (a row has a tensor's values for one token), and the tokens of the
    texts.

    - If ``sources`` is None: the function samples ``count`` texts of ``length`` tokens. Each text
      begins with the token ``begin``, or with a random token if ``begin`` is None. ``progress`` is
      called with the number of finished tokens of each text, and ``length``.
    - If ``sources`` is given: the model is an encoder-decoder. ``sources`` has inputs of the
      encoder, as lists of token numbers. The function samples an answer of ``length`` tokens to
      each source. Each answer begins with the model's start token. ``progress`` is called with the
      number of finished answers, and the number of all answers.

    Each further token is drawn from the probabilities that the model computes. ``seed`` is the seed
    of random numbers.

    Raises :class:`InputError` if ``count`` or ``length`` is not positive, or if ``sources`` is
    empty. The same error is raised if a source is empty, is too long or has a token that is not in
    the vocabulary.
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
    """Return the calibration of a decoder for ``texts``, which are lists of token numbers.

    All texts get the length of the longest text, but at most ``length`` tokens. A longer text is
    cut at the end. A shorter text is extended by the tokens of the texts after it in the list;
    after the last text, the list begins again. ``progress`` is called with the number of processed
    texts and the number of all texts.

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
    tokens = np.array(rows)
    return calibrate(model, weights, tokens, 100.0, progress, None, LEAST_ERROR)
