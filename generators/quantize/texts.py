"""What a decoder's tensors hold over texts that the decoder itself makes up."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Floats, Weights
from generators.quantize.calibrate import Progress
from generators.reference.cache import KvCache
from generators.reference.floats import forward

_NOT_KEPT = ("scores", "probabilities", "output")


@dataclass(frozen=True)
class SampledTexts:
    """Texts that a model has made up."""

    tokens: NDArray[np.int64]
    """[count, length]."""
    tensors: dict[str, Floats]
    """Each tensor of the model, [count * length, columns], one text behind the other, by name as in
    :func:`generators.reference.floats.forward`; scores and probabilities are left out."""


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
    """Return texts that the model makes up, each from the token ``begin``.

    Without one, None, each begins with another random token. Each next token is drawn from the
    model's distribution, at temperature 1. ``progress`` is told the places done. Raises
    :class:`InputError` where count or length is not positive.
    """
    for name, value in (("count", count), ("length", length)):
        if value < 1:
            raise InputError(f"Sampled texts' {name} must be positive, not {value}")
    rng = np.random.default_rng(seed)
    tokens = np.full((count, length), begin or 0, np.int64)
    if begin is None:
        tokens[:, 0] = rng.integers(0, model.vocabulary, count)
    cache = KvCache()
    parts: dict[str, list[Floats]] = {}
    for place in range(length):
        found = forward(model, weights, tokens[:, place : place + 1], cache)
        logits = found["logits"][:, 0]
        for name, tensor in found.items():
            if not name.endswith(_NOT_KEPT):
                parts.setdefault(name, []).append(tensor)
        if place + 1 < length:
            # The largest of logits with Gumbel noise is a draw from their softmax.
            noise = rng.gumbel(size=logits.shape)
            tokens[:, place + 1] = np.argmax(logits + noise, axis=1)
        if progress is not None:
            progress(place + 1, length)
    tensors = {name: np.concatenate(rows, axis=1) for name, rows in parts.items()}
    return SampledTexts(
        tokens, {name: rows.reshape(-1, rows.shape[-1]) for name, rows in tensors.items()}
    )
