"""What a decoder's tensors hold over texts that the decoder itself makes up."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from generators.text_description import TextDescription
from generators.text_model import FloatCache, text_forward
from generators.weights import Floats, Weights

Progress = Callable[[int, int], None]
"""Takes what is done, and all there is to do."""

BATCH = 4
"""Texts that are observed at once."""
_NOT_KEPT = "scores"


def sample_texts(
    model: TextDescription,
    weights: Weights,
    begin: int,
    *,
    count: int,
    length: int,
    seed: int,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Return texts that the model makes up, [count, length], each from the token ``begin``.

    Each next token is drawn from the model's distribution, at temperature 1. ``progress`` is told
    the places done. Raises :class:`ValueError` where count or length is not positive.
    """
    for name, value in (("count", count), ("length", length)):
        if value < 1:
            raise ValueError(f"Sampled texts' {name} must be positive, not {value}")
    rng = np.random.default_rng(seed)
    tokens = np.full((count, length), begin, np.int64)
    cache = FloatCache()
    for place in range(1, length):
        logits = text_forward(model, weights, tokens[:, place - 1 : place], cache)[:, 0]
        # The largest of logits with Gumbel noise is a draw from their softmax.
        tokens[:, place] = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        if progress is not None:
            progress(place, length - 1)
    return tokens


def observe(
    model: TextDescription, weights: Weights, tokens: NDArray[np.int64]
) -> dict[str, Floats]:
    """Return each tensor of some texts [count, n] by name, as rows [count * n, columns].

    Names are those of :func:`generators.text_model.text_forward`; scores are left out.
    """
    parts: dict[str, list[Floats]] = {}
    for first in range(0, len(tokens), BATCH):
        found: dict[str, Floats] = {}
        text_forward(model, weights, tokens[first : first + BATCH], found=found)
        for name, tensor in found.items():
            if not name.endswith(_NOT_KEPT):
                parts.setdefault(name, []).append(tensor.reshape(-1, tensor.shape[-1]))
    return {name: np.concatenate(rows) for name, rows in parts.items()}
