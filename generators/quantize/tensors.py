"""The tensors of a model in integers: how large each is, and what its steps are."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arch.config import Config
from generators.frontend.description import ModelDescription
from generators.frontend.weights import Weights
from generators.graph import WIDE, Tensor
from generators.quantize.calibrate import Range, Ranges
from sim.requantize import INT16_MAX

WIDE_HEADROOM = 2.0
"""How much larger than in calibration an INT16 value may become before it saturates."""


class Tensors:
    """Gives a model's tensors scales and zero points, by the ranges that calibration found."""

    def __init__(self, model: ModelDescription, weights: Weights, ranges: Ranges, config: Config):
        self.model, self.weights, self.config = model, weights, config
        self.ranges = ranges.tensors
        ends = ("_sum", "_norm", ".stream") + (() if model.embedding_norm else ("embedding",))
        stream = [self.ranges[name].size for name in self.ranges if name.endswith(ends)]
        self.stream_scale = WIDE_HEADROOM * max(stream) / INT16_MAX
        hidden = [self.ranges[f"layers.{layer}.hidden"] for layer in range(model.layers)]
        self.hidden_zero = self.common_zero(hidden)
        self.probability_zero = self.common_zero(
            [size for sizes in ranges.heads.values() for size in sizes]
            if model.shaped
            else [Range(0.0, 1.0)]
        )

    def common_zero(self, ranges: Sequence[Range]) -> int:
        """Return the zero point with which each range, scaled to fit, loses least at worst."""
        if not self.config.zero_points:
            return 0
        low, high = self.config.operand_min, self.config.operand_max
        share = max((-r.low / (r.high - r.low) for r in ranges if r.high > r.low), default=0.5)
        return min(low + math.ceil(share * (high - low)), high - 1)

    def scale(self, found: Range, zero: int = 0) -> float:
        """Return the least scale at which a range fits around a zero point."""
        up, down = self.config.operand_max - zero, zero - self.config.operand_min
        scale = max(found.high / up, -found.low / down if down else 0.0)
        return scale or 1.0 / up

    def _symmetric_scale(self, found: Range) -> float:
        return found.size / self.config.operand_max

    def input(self) -> Tensor:
        """Return the input: tokens, or the embedding that the host looks up."""
        model, found = self.model, self.ranges["input"]
        if model.embedding != "linear":
            return replace(self.embedding(), name="input")
        zero = self.common_zero([found])
        scale = self.scale(found, zero)
        width = self.config.operand_width
        return Tensor("input", "input", model.tokens, model.features, scale, zero, width)

    def embedding(self) -> Tensor:
        """Return the stream before the first block, or what its norm takes."""
        model = self.model
        if not model.embedding_norm:
            return self.stream("embedding")
        found = self.wide("embedding", model.sequence, model.dim)
        if model.embedding == "tokens":
            return replace(found, scale=self._largest_row() / INT16_MAX)
        return found

    def _largest_row(self) -> float:
        """Return the largest magnitude that a sum of rows of the trained tables may have."""
        names = ("words", "types", "positions", "class_token")
        tables = [np.atleast_2d(self.weights[name]) for name in names if name in self.weights]
        bound: float = np.sum([np.abs(table).max(axis=0) for table in tables], axis=0).max()
        return bound or 1.0

    def narrow(self, name: str, columns: int, buffer: str = "", rows: int = 0) -> Tensor:
        """Return an INT8 tensor, symmetric."""
        scale = self._symmetric_scale(self.ranges[name])
        buffer = buffer or name.rpartition(".")[2]
        return Tensor(
            name, buffer, rows or self.model.sequence, columns, scale, 0, self.config.operand_width
        )

    def hidden(self, name: str) -> Tensor:
        """Return a hidden layer, INT8 around the zero point of all of them."""
        scale = self.scale(self.ranges[name], self.hidden_zero)
        return replace(self.narrow(name, self.model.ffn), scale=scale, zero=self.hidden_zero)

    def stream(self, name: str, rows: int = 0, buffer: str = "stream") -> Tensor:
        """Return the residual stream under a name, INT16 in the one scale of the model."""
        rows = rows or self.model.sequence
        return Tensor(name, buffer, rows, self.model.dim, self.stream_scale, width=WIDE)

    def wide(self, name: str, rows: int, columns: int) -> Tensor:
        """Return an INT16 tensor in a scale of its own."""
        scale = WIDE_HEADROOM * self.ranges[name].size / INT16_MAX
        return Tensor(name, name, rows, columns, scale, width=WIDE)
