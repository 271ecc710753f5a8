"""Inputs of an ONNX graph: their shapes, and their numbers where only some tokens are there."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from celosia.generators.frontend.onnx.node import Array


@dataclass(frozen=True)
class Place:
    """An input of the graph."""

    name: str
    shape: tuple[int, ...]
    """With a batch of 1."""
    kind: str
    """``data``, ``tokens``, ``mask``, ``padding`` (its contrary), ``types`` (all 0), ``places``
    (0, 1, 2, ...), ``past`` (keys and values of earlier tokens, of which there are none) or
    ``other``."""
    dtype: Any
    """NumPy's name of the elements."""

    @property
    def masks(self) -> bool:
        """True where the input says which tokens are there."""
        return self.kind in ("mask", "padding")

    @property
    def count(self) -> int:
        """Tokens of an input of token numbers or masks."""
        return max(self.shape)

    def given(self, length: int) -> Array:
        """Return what this input is where the first ``length`` tokens are there."""
        if self.kind in ("past", "other"):
            return np.zeros(self.shape, self.dtype)
        numbers = np.zeros(self.count, np.int64)
        if self.kind == "mask":
            numbers[:length] = 1
        elif self.kind == "padding":
            numbers[length:] = 1
        elif self.kind == "places":
            numbers = np.arange(self.count)
        return numbers.reshape(self.shape).astype(self.dtype)
