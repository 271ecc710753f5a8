"""Choice of the next token from the scores of the vocabulary."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from celosia.arch.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """Options of sampling the next token: temperature, and probability of the nucleus (top-p)."""

    temperature: float = 0.0
    """Divisor of the logits; at 0 the largest logit is chosen without a random draw."""
    top_p: float = 1.0
    """Only the likeliest tokens with this much probability together are candidates."""

    def __post_init__(self) -> None:
        """Check both numbers."""
        if self.temperature < 0:
            raise InputError(f"Temperature must not be negative, not {self.temperature}")
        if not math.isfinite(self.temperature):
            raise InputError(f"Temperature must be finite, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"Top-p must be more than 0 and at most 1, not {self.top_p}")

    @property
    def greedy(self) -> bool:
        """True if the token with the largest logit is always chosen."""
        return self.temperature == 0


def draw(logits: ArrayLike, sampling: Sampling, rng: np.random.Generator) -> int:
    """Draw the next token from ``logits`` [n] by nucleus sampling (Holtzman et al. 2020).

    At temperature 0, the result is the token with the largest logit, and ``rng`` is not used.
    """
    values = np.asarray(logits, np.float64)
    if sampling.greedy:
        return int(np.argmax(values))
    probabilities = np.exp((values - values.max()) / sampling.temperature)
    order = np.argsort(-probabilities, kind="stable")
    total = np.cumsum(probabilities[order]) / probabilities.sum()
    kept = order[: int(np.searchsorted(total, sampling.top_p)) + 1]
    probabilities = probabilities[kept] / probabilities[kept].sum()
    return int(rng.choice(kept, p=probabilities))
