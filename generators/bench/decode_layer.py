"""A decoder layer in integers, to be run for one step.

It is Llama's, of which keys are taken as rotated already::

    h = norm(x);  q, k, v = h Wq, h Wk, h Wv;  y = x + attention(q, K, V) Wo
    g = norm(y);  z = y + (silu(g Wg) * (g Wu)) Wd

``K`` and ``V`` are those of positions before, and ``k`` and ``v`` behind them. At the first
position attention's output is its only value, ``v``.

``x``, ``y`` and ``z`` are INT16, everything else INT8.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.formats import FORMATS, WeightFormat
from arch.functions import int8_table, silu
from generators.quantize.options import INT8, Quantization
from generators.quantize.stored import factors_of
from generators.stored import Stored
from sim.formats import pack, unpack
from sim.norm import norm_parameters, normalize
from sim.requantize import quantize_multiplier, requantize, saturate16
from sim.softmax import softmax

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
    keys: Ints
    """Keys of the positions before, [positions - 1, dim], of all heads."""
    values: Ints
    heads: int
    codes: dict[str, Stored | None]
    """Each projection's weights where they are stored in fewer bits."""

    @property
    def positions(self) -> int:
        """Positions that a token attends to."""
        return len(self.keys) + 1

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
    config: Config,
    rng: np.random.Generator,
    *,
    dim: int,
    ffn: int,
    batch: int = 1,
    positions: int = 1,
    heads: int = 1,
    weights: str = INT8,
    group: int = 0,
) -> Layer:
    """Return a layer of random weights whose elements stay within their ranges, mostly.

    They are in a format, with scales for groups of inputs if ``group`` is not 0.

    Raises :class:`InputError` where a size is not positive, or sizes or formats do not fit.
    """
    sizes = {"dim": dim, "ffn": ffn, "batch": batch, "positions": positions, "heads": heads}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"Size {name} of a layer must be positive, not {size}")
    if dim % heads:
        raise InputError(f"Size dim of a layer must be a multiple of heads = {heads}, not {dim}")
    if positions > 1 and batch > 1:
        raise InputError(
            f"A batch of {batch} tokens has positions of its own each, but positions is {positions}"
        )
    Quantization(weights=weights, group=group)
    low, high = config.operand_min, config.operand_max
    spread = (high + 1) / 4  # standard deviation of an INT8 element
    shapes = {name: (dim, ffn if name in ("gate", "up") else dim) for name in PROJECTIONS}
    shapes["down"] = (ffn, dim)
    matrices, scales = {}, {}
    codes: dict[str, Stored | None] = {}
    for name, (k, n) in shapes.items():
        if weights == INT8:
            codes[name], matrices[name] = None, rng.integers(low, high + 1, (k, n))
            sums = spread * (high + 1) / np.sqrt(3) * np.sqrt(k)
        else:
            codes[name], matrices[name] = _codes(rng, k, n, FORMATS[weights], group)
            sums = spread * matrices[name].std() * np.sqrt(k)
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
    cached = np.clip(np.rint(rng.normal(0, spread, (2, positions - 1, dim))), low, high)
    # Scores of two octaves, probabilities of 127 steps, and their sums over values.
    reach = spread * spread * np.sqrt(dim // heads)
    factors = [512 / reach, high / 2**24, max(1.0, np.sqrt(positions / 6)) / high]
    scales["attention"] = _scales(np.array(factors), rng, 0.0)
    return Layer(
        x=np.clip(np.rint(rng.normal(0, RESIDUAL_SPREAD, (batch, dim))), -32768, 32767).astype(
            np.int64
        ),
        weights=matrices,
        scales=scales,
        keys=cached[0].astype(np.int64),
        values=cached[1].astype(np.int64),
        heads=heads,
        codes=codes,
        table=int8_table(silu, 2 / spread, 0, 2 / spread, 0, config.operand_width),
    )


def _codes(
    rng: np.random.Generator, k: int, n: int, form: WeightFormat, group: int
) -> tuple[Stored, Ints]:
    """Return random weights [k, n] in a format, and the operands that they are."""
    codes, scales = rng.integers(0, len(form.values), (k, n)), None
    if group:
        scales = rng.choice(factors_of(form), (-(-k // group), n))
    stored = pack(codes, form, group, scales)
    return Stored(form, codes, group, scales), unpack(stored, k, form, group)


def _scales(factors: NDArray[np.float64], rng: np.random.Generator, sums: float) -> Scales:
    pairs = [quantize_multiplier(float(factor)) for factor in factors]
    bound = int(sums / 2)
    bias = rng.integers(-bound, bound + 1, len(factors))
    return (
        bias,
        np.array([m for m, _ in pairs], np.int64),
        np.array([s for _, s in pairs], np.int64),
    )


def _attend(layer: Layer, found: dict[str, Ints]) -> Ints:
    """Return attention's output, [batch, dim]."""
    if layer.positions == 1:
        return found["v"]
    split = (-1, layer.heads, layer.dim // layer.heads)
    q = found["q"].reshape(split)[0]  # [heads, head_dim]
    k = np.concatenate((layer.keys, found["k"])).reshape(split)
    v = np.concatenate((layer.values, found["v"])).reshape(split)
    words = list(zip(*layer.scales["attention"], strict=True))
    scores = requantize(np.einsum("hd,phd->hp", q, k), *words[0], 0, -32768, 32767)
    shares = requantize(softmax(scores.astype(np.int64)), *words[1], 0, -128, 127)
    sums = np.einsum("hp,phd->hd", shares.astype(np.int64), v)
    return np.asarray(requantize(sums, *words[2], 0, -128, 127), np.int64).reshape(1, -1)


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
    found["y"] = residual(_attend(layer, found), "o", layer.x)
    g = norm(found["y"], "norm2")
    gate = layer.table[narrow(project(g, "gate"), "gate") + 128]
    found["hidden"] = narrow(gate * narrow(project(g, "up"), "up"), "mul")
    found["z"] = residual(found["hidden"], "down", found["y"])
    return found
