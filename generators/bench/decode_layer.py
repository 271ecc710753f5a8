"""A decoder layer in integers, to be run for one step.

It is Llama's at the first position, where attention's output is its only value::

    h = norm(x);  q, k, v = h Wq, h Wk, h Wv;  y = x + v Wo
    g = norm(y);  z = y + (silu(g Wg) * (g Wu)) Wd

``x``, ``y`` and ``z`` are INT16, everything else INT8.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.functions import int8_table, silu
from sim.norm import norm_parameters, normalize
from sim.requantize import quantize_multiplier, requantize, saturate16

Ints = NDArray[np.int64]
Scales = tuple[Ints, Ints, Ints]
"""Bias, multiplier and shift of each column, [n] each."""

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")

RESIDUAL_SPREAD = 1000
"""Standard deviation of what a projection adds to the residual (steps)."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A decoder layer's integers, and its input ``x`` [batch, dim]."""

    x: Ints
    weights: dict[str, Ints]
    """Each projection's [k, n]."""
    scales: dict[str, Scales]
    """What each projection, ``norm1``, ``norm2`` and ``mul`` are requantized by."""
    table: Ints
    """The activation table, [256]."""

    @property
    def batch(self) -> int:
        """Rows of the input: tokens that share each weight."""
        return int(self.x.shape[0])

    @property
    def dim(self) -> int:
        """Width of the residual."""
        return int(self.x.shape[1])

    @property
    def ffn(self) -> int:
        """Width of the feed-forward part."""
        return int(self.weights["gate"].shape[1])


def random_layer(
    config: Config, rng: np.random.Generator, *, dim: int, ffn: int, batch: int
) -> Layer:
    """Return a layer of random weights whose elements stay within their ranges, mostly.

    Raises :class:`InputError` where a size is not positive.
    """
    for name, size in (("dim", dim), ("ffn", ffn), ("batch", batch)):
        if size < 1:
            raise InputError(f"Size {name} of a layer must be positive, not {size}")
    low, high = config.operand_min, config.operand_max
    spread = (high + 1) / 4  # standard deviation of an INT8 element
    shapes = {name: (dim, ffn if name in ("gate", "up") else dim) for name in PROJECTIONS}
    shapes["down"] = (ffn, dim)
    weights, scales = {}, {}
    for name, (k, n) in shapes.items():
        weights[name] = rng.integers(low, high + 1, (k, n))
        sums = spread * (high + 1) / np.sqrt(3) * np.sqrt(k)
        wanted = RESIDUAL_SPREAD if name in ("o", "down") else spread
        scales[name] = _scales(rng.uniform(0.5, 1, n) * wanted / sums, rng, sums)
    for name in ("norm1", "norm2"):
        gamma = rng.uniform(0.5, 1, dim)
        found = norm_parameters(gamma, np.zeros(dim), 1 / spread)
        scales[name] = (
            found[0].astype(np.int64),
            found[1].astype(np.int64),
            found[2].astype(np.int64),
        )
    scales["mul"] = _scales(rng.uniform(2, 4, ffn) / spread, rng, 0.0)
    return Layer(
        x=np.clip(np.rint(rng.normal(0, RESIDUAL_SPREAD, (batch, dim))), -32768, 32767).astype(
            np.int64
        ),
        weights=weights,
        scales=scales,
        table=int8_table(silu, 2 / spread, 0, 2 / spread, 0, config.operand_width),
    )


def _scales(factors: NDArray[np.float64], rng: np.random.Generator, sums: float) -> Scales:
    pairs = [quantize_multiplier(float(factor)) for factor in factors]
    bound = int(sums / 2)
    bias = rng.integers(-bound, bound + 1, len(factors))
    return (
        bias,
        np.array([m for m, _ in pairs], np.int64),
        np.array([s for _, s in pairs], np.int64),
    )


def expected(layer: Layer, config: Config) -> dict[str, Ints]:
    """Return every tensor that the step stores, by plain NumPy, by name."""
    low, high = config.operand_min, config.operand_max

    def narrow(values: Ints, name: str) -> Ints:
        found = requantize(values, *layer.scales[name], 0, low, high)
        return np.asarray(found, np.int64)

    def project(a: Ints, name: str) -> Ints:
        # Exact: no sum of max_k products reaches 2**53.
        return np.asarray(a.astype(np.float64) @ layer.weights[name], np.int64)

    def residual(a: Ints, name: str, x: Ints) -> Ints:
        wide = requantize(project(a, name), *layer.scales[name], 0, -32768, 32767)
        return saturate16(wide.astype(np.int64) + x).astype(np.int64)

    def norm(x: Ints, name: str) -> Ints:
        return narrow(normalize(x, rms=True, eps=0)[0].astype(np.int64), name)

    h = norm(layer.x, "norm1")
    found = {name: narrow(project(h, name), name) for name in ("q", "k", "v")}
    found["y"] = residual(found["v"], "o", layer.x)
    g = norm(found["y"], "norm2")
    gate = layer.table[narrow(project(g, "gate"), "gate") + 128]
    found["hidden"] = narrow(gate * narrow(project(g, "up"), "up"), "mul")
    found["z"] = residual(found["hidden"], "down", found["y"])
    return found
