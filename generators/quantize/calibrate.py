"""Calibration: evaluates a model on sample inputs, and records the range of each tensor's values.

For tensors that the caller names, it also stores rows (a row has the values of one token).
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.network import Description
from celosia.generators.quantize.policy import RANGES, Policy
from celosia.generators.quantize.refusals import check_finite, check_tensor
from celosia.generators.quantize.rows import BY_PAIRS, Rows
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward

Samples = Sequence[NDArray[np.generic]] | NDArray[np.generic]
"""Inputs, each [n, features] or [n] token numbers; in one array if all have the same shape."""
Progress = Callable[[int, int], None]
"""Receives the number of samples that are done, and of all."""

BATCH_ELEMENTS = 1 << 18
"""Most elements of a layer that are computed at once, in one batch of samples of one length."""


@dataclass(frozen=True)
class Range:
    """The smallest and largest value of a tensor in calibration; the range includes 0."""

    low: float
    high: float

    @property
    def size(self) -> float:
        """Largest magnitude of the tensor's values, or 1 if all are zero."""
        return max(self.high, -self.low) or 1.0


@dataclass(frozen=True)
class Calibration:
    """Ranges of all tensors over calibration inputs, and sample rows of some tensors.

    A row has a tensor's values for one token. The names of tensors are those in
    :func:`celosia.generators.reference.floats.forward`.
    """

    ranges: dict[str, Range]
    heads: dict[str, list[Range]]
    """For each head of the probabilities, by name."""
    columns: dict[str, Floats]
    """The largest magnitude of each column of the inputs of the blocks' linear layers, by name."""
    rows: dict[str, Floats] = field(default_factory=dict, repr=False)
    """Rows [count, columns] of some tensors by name, of one input after another: of inputs that are
    spread evenly over all, up to a bound (:data:`celosia.generators.quantize.rows.KEPT_BYTES`)."""
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Texts whose rows are kept, [count, length]."""
    sources: tuple[int, ...] = ()
    """Tokens of the source of each of these texts, whose rows are [all of them, columns]."""
    policy: Policy = RANGES
    """The rules by which scales follow from these values."""

    def values(self, name: str) -> Floats:
        """Return the numbers from which the scale of the tensor ``name`` is chosen.

        If ``policy.searched`` is true, these are the stored rows, [count, columns]. Otherwise they
        are the lower and the upper end of the tensor's range, [2].
        """
        if self.policy.searched:
            return self.rows[name]
        return np.array([self.ranges[name].low, self.ranges[name].high])

    def bounds(self, name: str) -> Range:
        """Return the smallest range that includes 0 and all numbers that :meth:`values` returns."""
        values = self.values(name)
        return Range(min(float(values.min()), 0.0), max(float(values.max()), 0.0))

    def largest(self, name: str) -> Floats:
        """Return the largest magnitude of each column of a tensor, [columns]."""
        rows = self.rows[name] if self.policy.searched else self.columns[name][None]
        return np.asarray(np.abs(rows).max(axis=0))


class Calibrator:
    """Evaluates a float model on inputs; records each tensor's range, and rows of some tensors.

    ``count`` inputs have at most ``length`` rows each. A range leaves out the fraction ``share`` of
    the values at each end. If ``share`` is not 0, ``total`` is the sum of n over all inputs with n
    rows, and ``squares`` is the sum of n**2.
    """

    def __init__(
        self,
        model: Description,
        weights: Weights,
        count: int,
        length: int,
        wanted: Collection[str] | None = None,
        share: float = 0.0,
        total: int = 0,
        squares: int = 0,
    ):
        check_finite(model, weights)
        self.rows = Rows(count, length, wanted)
        self._model, self._weights = model, weights
        self._share, self._total, self._squares = share, total, squares
        self._extremes: dict[str, _Extremes] = {}
        self._heads: dict[str, list[_Extremes]] = {}
        self._columns: dict[str, Floats] = {}

    def run(
        self, inputs: ArrayLike, cache: KvCache | None = None, *, source: bool = False
    ) -> dict[str, Floats]:
        """Evaluate a batch of inputs, update the tensors' ranges, and return the tensors by name.

        Arguments and result are those of :func:`celosia.generators.reference.floats.forward`. The
        caller stores rows by passing the result to ``rows.add``. Raises :class:`InputError` if a
        value exceeds the range of 32-bit floats.
        """
        model = self._model
        with np.errstate(all="ignore"):
            tensors = forward(model, self._weights, inputs, cache, source=source)
        for name, values in tensors.items():
            pairs = name.endswith(BY_PAIRS)
            seen = values[~np.isneginf(values)] if pairs else values
            check_tensor(model, name, seen)
            total = model.heads * self._squares if pairs else self._total * values.shape[-1]
            self._extremes.setdefault(name, _Extremes(self._share, total)).add(seen)
            if name.endswith(("attention_input", "mlp_input")):
                largest = np.abs(values).max(axis=(0, 1))
                self._columns[name] = np.maximum(self._columns.get(name, largest), largest)
            if name.endswith(".probabilities"):
                of_heads = self._heads.setdefault(
                    name, [_Extremes(self._share, self._squares) for _ in range(model.heads)]
                )
                for head, extremes_of_head in enumerate(of_heads):
                    extremes_of_head.add(values[:, head])
        return tensors

    def calibration(self, **others: Any) -> Calibration:
        """Return a :class:`Calibration` with the ranges and the stored rows of all tensors.

        The optional keyword arguments ``tokens``, ``sources`` and ``policy`` become the fields of
        the same names in the result. The rows are deleted from the calibrator.
        """
        ranges = {name: extreme.range() for name, extreme in self._extremes.items()}
        heads = {name: [head.range() for head in heads] for name, heads in self._heads.items()}
        columns = {
            name: np.minimum(values, ranges[name].size) for name, values in self._columns.items()
        }
        return Calibration(ranges, heads, columns, self.rows.joined(), **others)


def calibrate(
    model: Description,
    weights: Weights,
    inputs: Samples,
    percentile: float = 100.0,
    progress: Progress | None = None,
    wanted: Collection[str] | None = (),
    policy: Policy = RANGES,
) -> Calibration:
    """Evaluate a float model on ``inputs``; return each tensor's range, and rows of some tensors.

    A range is from percentile ``100 - percentile`` to ``percentile`` of the values, and includes 0.
    ``wanted`` names the tensors whose rows are stored; None stands for all tensors with one row per
    token. Raises :class:`InputError` if an argument is invalid.
    """
    if not 50 < percentile <= 100:
        raise InputError(f"Calibration percentile must be above 50, at most 100, not {percentile}")
    if not len(inputs):
        raise InputError("Calibration needs at least one input")
    samples = [np.asarray(values) for values in inputs]
    if not all(np.isfinite(values).all() for values in samples):
        raise InputError("Calibration inputs must be finite numbers")
    added = int("class_token" in weights)
    counts = [len(values) + added for values in samples]
    squares, share = sum(count**2 for count in counts), 1 - percentile / 100
    sizes = len(samples), max(counts)
    calibrator = Calibrator(model, weights, *sizes, wanted, share, sum(counts), squares)
    done = 0
    for batch in _batches(model, samples, added):
        calibrator.rows.add(calibrator.run(batch), done)
        done += len(batch)
        if progress is not None:
            progress(done, len(samples))
    texts = {"tokens": calibrator.rows.chosen(np.stack(samples))} if wanted is None else {}
    return calibrator.calibration(policy=policy, **texts)


def _batches(
    model: Description, samples: Sequence[NDArray[np.generic]], added: int
) -> Iterator[NDArray[np.generic]]:
    """Yield neighbours of one shape as batches of at most BATCH_ELEMENTS numbers.

    The model adds ``added`` rows to each sample.
    """
    first = 0
    while first < len(samples):
        shape = samples[first].shape
        rows = shape[0] + added
        wide = rows * max(model.dim, model.ffn, model.heads * rows)
        most = max(1, BATCH_ELEMENTS // wide)
        last = first + 1
        while last < len(samples) and last - first < most and samples[last].shape == shape:
            last += 1
        yield np.stack(samples[first:last])
        first = last


class _Extremes:
    """The smallest and the largest values of a tensor, as far as its percentiles need them."""

    def __init__(self, share: float, total: int):
        """Store the share of values above the range, and an upper bound of their number."""
        self.share, self.count = share, 0
        self.kept = math.floor(share * max(total - 1, 0)) + 2 if share else 1
        self.low: Floats = np.zeros(0)
        self.high: Floats = np.zeros(0)

    def add(self, values: Floats) -> None:
        """Include more values."""
        low = high = values.ravel()
        self.count += len(low)
        if self.share == 0:
            low, high = low.min(keepdims=True), high.max(keepdims=True)
        self.low = np.sort(np.concatenate([self.low, low]))[: self.kept]
        self.high = np.sort(np.concatenate([self.high, high]))[-self.kept :]

    def range(self) -> Range:
        """Return the range of all values added."""
        place = self.share * (self.count - 1)
        low = np.interp(place, np.arange(len(self.low)), self.low)
        high = np.interp(place, np.arange(len(self.high)), self.high[::-1])
        return Range(min(float(low), 0.0), max(float(high), 0.0))
