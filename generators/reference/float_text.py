"""Greedy text generation with the float model."""

import numpy as np

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward


class FloatText:
    """A text that a float decoder or encoder-decoder generates, token by token."""

    def __init__(self, model: TextDescription, weights: Weights):
        self._model, self._weights = model, weights
        self._cache = KvCache()

    def begin(self, tokens: list[int]) -> int:
        """Begin a new text, and return the likeliest token after the prompt ``tokens``.

        For an encoder-decoder, ``tokens`` is a source, and the result is the answer's first token.
        Raises :class:`InputError` if a token or the number of tokens is invalid.
        """
        self._cache = KvCache()
        if not self._model.source_layers:
            return self._likeliest(tokens)
        source = np.array([tokens], np.int64)
        forward(self._model, self._weights, source, self._cache, source=True)
        return self._likeliest([self._model.start])

    def step(self, token: int) -> int:
        """Append a token to the text, and return the likeliest next token."""
        return self._likeliest([token])

    def _likeliest(self, tokens: list[int]) -> int:
        text = np.array([tokens], np.int64)
        logits = forward(self._model, self._weights, text, self._cache)["logits"]
        return int(logits[0, -1].argmax())
