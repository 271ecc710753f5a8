"""Quantization scales of queries, keys and values whose columns have separate scales."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.builder import network
from celosia.generators.graph.network import Description, Rotary
from celosia.generators.graph.operations import ROTARY_STEPS
from celosia.generators.graph.tensors import WIDE, Tensor
from celosia.generators.quantize.calibrate import Calibration
from celosia.generators.quantize.keys import INT8_MAX, KeySteps, quantize_keys
from celosia.generators.quantize.options import NARROW_BITS, Quantization
from celosia.generators.quantize.steps import best_steps, kept_range, spread_range, wide_scale


class HeadSteps:
    """Chooses the scales of columns of queries, keys and values.

    The option ``whole`` is the number of columns of each key head that keep 8 bits. The option
    ``block`` is the number of value columns that share an exponent. Values have one scale if the
    strength ``balance`` is 0. Raises :class:`InputError` if ``whole`` exceeds the columns of a key
    head, or if the number of value columns is not a multiple of ``block``.
    """

    def __init__(
        self, model: Description, calibration: Calibration, options: Quantization, balance: float
    ):
        self.model, self.calibration, self.options = model, calibration, options
        self.balance, width = balance, model.head_dim
        self.rotary = any(isinstance(node, Rotary) for node in network(model).all_nodes)
        self.whole = options.whole or 0
        """First columns of an integer key head that keep 8 bits."""
        if options.whole is None and self.rotary and options.kv_bits < NARROW_BITS:
            self.whole = width // 4 * 2
        if self.whole > width:
            raise InputError(f"Heads of {width} columns have no {self.whole} that keep 8 bits")
        if options.block and model.kv_width % options.block:
            raise InputError(
                f"Model {model.name} has {model.kv_width} columns of values, which no blocks of "
                f"{options.block} share"
            )
        columns = np.arange(width)
        # The last pairs turn slowest.
        slow = columns.reshape(-1, 2)[::-1].ravel() if self.rotary and self.whole else columns
        self.columns = slow
        """Column of a float head for each column of an integer head, [key_dim]."""
        self._keys: dict[str, KeySteps] = {}

    def projected(self, tensor: Tensor, *, wide: bool) -> Tensor:
        """Return queries or keys, before their rotation or after it; INT16 after it if ``wide``."""
        prefix, _, kind = tensor.name.rpartition(".")
        name, steps = kind.removesuffix("_sums"), self.keys(prefix)
        by_head = steps.query if name == "query" else steps.key  # [heads, key_dim]
        picks = self._picks(tensor.columns)
        tensor = replace(tensor, columns=len(picks), picks=picks, gains=by_head.ravel())
        if kind == name:
            offsets = steps.middle.ravel() if name == "key" else None
            return replace(tensor, offsets=offsets, width=WIDE if wide else tensor.width)
        # An INT16 after the rotation has the steps of the one before it.
        return replace(tensor, scale=1.0 if wide else 1.0 / ROTARY_STEPS, width=WIDE)

    def unnormed(self, tensor: Tensor) -> Tensor:
        """Return queries or keys before the norm of each head."""
        # The variance that norms add is an operand, the same in all layers.
        ranges = self.calibration.ranges.items()
        sizes = [bounds.size for name, bounds in ranges if name.endswith("_heads")]
        picks = self._picks(tensor.columns)
        return replace(tensor, scale=wide_scale(sizes), width=WIDE, picks=picks)

    def normed(self, tensor: Tensor) -> Tensor:
        """Return queries or keys after the norm of each head; all heads have the same scales."""
        picks = self._picks(tensor.columns)
        by_head = self.calibration.values(tensor.name).reshape(-1, self.model.head_dim)
        gains = np.resize(best_steps(by_head[:, self.columns], INT8_MAX), len(picks))
        return replace(tensor, gains=gains, picks=picks)

    def value(self, tensor: Tensor) -> Tensor:
        """Return values, which have an offset for each column unless norms are deferred."""
        values = self.calibration.values(tensor.name)
        together = 1 if self.balance else tensor.columns
        if self.options.deferred:
            middle, steps = np.zeros(tensor.columns), best_steps(values, INT8_MAX)
        elif self.options.block:
            middle, steps = spread_range(values, together)
        else:
            middle, steps = kept_range(values, self.options.kv_bits, together)
        return replace(tensor, gains=steps, offsets=middle)

    def keys(self, prefix: str) -> KeySteps:
        """Return the scales of an attention's queries and keys, and of their products."""
        if prefix not in self._keys:
            source, cross = prefix.startswith("source."), prefix.endswith(".cross")
            self._keys[prefix] = quantize_keys(
                self.model,
                self._by_text(f"{prefix}.key", self.model.kv_heads, source=source or cross),
                self._by_text(f"{prefix}.query", self.model.heads, source=source),
                self.columns,
                self.whole,
                self.options,
                causal=not (source or cross),
                rotary=self.rotary,
            )
        return self._keys[prefix]

    def _picks(self, columns: int) -> NDArray[np.int64]:
        """Return the float model's column for each column of queries or keys."""
        first = np.arange(0, columns, self.model.head_dim)[:, None]
        return np.asarray((first + self.columns).ravel())

    def _by_text(self, name: str, heads: int, *, source: bool) -> list[Floats]:
        """Return a tensor's rows for each text, or for each source, [n, heads, head_dim] each."""
        rows = self.calibration.values(name).reshape(-1, heads, self.model.head_dim)
        count, length = self.calibration.tokens.shape
        counts = self.calibration.sources if source else (length,) * count
        return np.split(rows, np.cumsum(counts)[:-1])
