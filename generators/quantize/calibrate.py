"""Calibration: the range of every tensor of an encoder over sample inputs."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.quantize.refusals import check_finite, check_tensor
from celosia.generators.reference.floats import forward

Samples = Sequence[NDArray[np.generic]] | NDArray[np.generic]
"""Inputs, each [n, features] or [n] token numbers; in one array if all have the same shape."""
Progress = Callable[[int, int], None]
"""Receives the number of samples that are done, and of all."""

SAMPLES = 2048
"""Approximate number of a tensor's rows by which weights are chosen."""
BATCH_ELEMENTS = 1 << 18
"""Most elements of a layer that are computed at once, in one batch of samples of one length."""


@dataclass(frozen=True)
class Range:
    """The smallest and largest value of a tensor in calibration; the range includes 0."""

    low: float
    high: float

    @property
    def size(self) -> float:
        """The largest magnitude, or 1 if all values are zero."""
        return max(self.high, -self.low) or 1.0


@dataclass(frozen=True)
class Ranges:
    """Results of calibration: ranges, magnitudes and sample rows of tensors."""

    tensors: dict[str, Range]
    """By name, as in :func:`celosia.generators.reference.floats.forward`."""
    heads: dict[str, list[Range]]
    """For each head of the probabilities, by name."""
    columns: dict[str, Floats]
    """The largest magnitude of each column of the inputs of the blocks' linear layers, by name."""
    rows: dict[str, Floats] = field(default_factory=dict, repr=False)
    """Rows [count, columns] of tensors, spread evenly over the inputs, by name."""


def calibrate(
    model: ModelDescription,
    weights: Weights,
    inputs: Samples,
    percentile: float = 100.0,
    progress: Progress | None = None,
    wanted: Collection[str] = (),
) -> Ranges:
    """Return the ranges of all tensors, and of each head's probabilities, over sample inputs.

    A percentile below 100 leaves out that share of the largest and of the smallest values of all
    inputs together, exactly as :func:`numpy.percentile` would. About :data:`SAMPLES` rows are kept
    of each tensor in ``wanted``.

    Raises :class:`InputError` if there is no input, or an input is not finite or has a shape that
    the model does not accept. The same error is raised unless the percentile is above 50 and at
    most 100.
    """
    if not 50 < percentile <= 100:
        raise InputError(f"Calibration percentile must be above 50, at most 100, not {percentile}")
    if not len(inputs):
        raise InputError("Calibration needs at least one input")
    samples = [np.asarray(values) for values in inputs]
    if not all(np.isfinite(values).all() for values in samples):
        raise InputError("Calibration inputs must be finite numbers")
    check_finite(model, weights)
    share = 1 - percentile / 100
    most = sum(len(values) + model.class_token for values in samples)
    squares = sum((len(values) + model.class_token) ** 2 for values in samples)
    extremes: dict[str, _Extremes] = {}
    heads: dict[str, list[_Extremes]] = {}
    columns: dict[str, Floats] = {}
    rows: dict[str, list[Floats]] = {name: [] for name in wanted}

    def note(name: str, values: Floats, total: int) -> None:
        check_tensor(model, name, values)
        extremes.setdefault(name, _Extremes(share, total)).add(values)

    done = 0
    for batch in _batches(model, samples):
        with np.errstate(all="ignore"):
            forwarded = forward(model, weights, batch)
        for name, values in forwarded.items():
            if name.endswith((".scores", ".probabilities")):
                note(name, values, model.heads * squares)
            else:
                note(name, values, most * values.shape[-1])
            if name.endswith(("attention_input", "mlp_input")):
                largest = np.abs(values).max(axis=(0, 1))
                columns[name] = np.maximum(columns.get(name, largest), largest)
            if name.endswith(".probabilities"):
                of_heads = heads.setdefault(
                    name, [_Extremes(share, squares) for _ in range(model.heads)]
                )
                for head, extremes_of_head in enumerate(of_heads):
                    extremes_of_head.add(values[:, head])
        for name, several in rows.items():
            found_rows = forwarded[name].reshape(-1, forwarded[name].shape[-1])
            of_all = len(found_rows) * len(samples) // len(batch)
            several.append(found_rows[:: max(1, of_all // SAMPLES)])
        done += len(batch)
        if progress is not None:
            progress(done, len(samples))
    tensors = {name: extreme.range() for name, extreme in extremes.items()}
    return Ranges(
        tensors,
        {name: [head_range.range() for head_range in several] for name, several in heads.items()},
        {name: np.minimum(values, tensors[name].size) for name, values in columns.items()},
        {name: np.concatenate(several) for name, several in rows.items()},
    )


def _batches(
    model: ModelDescription, samples: Sequence[NDArray[np.generic]]
) -> Iterator[NDArray[np.generic]]:
    """Yield neighbours of one shape as batches of at most BATCH_ELEMENTS numbers."""
    first = 0
    while first < len(samples):
        shape = samples[first].shape
        rows = shape[0] + model.class_token if shape else 1
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
        self.kept = math.floor(share * max(total - 1, 0)) + 2
        self.low: Floats = np.zeros(0)
        self.high: Floats = np.zeros(0)

    def add(self, values: Floats) -> None:
        """Include more values."""
        flat = values.ravel()
        self.count += len(flat)
        if self.share == 0:
            self.low = np.append(self.low, flat.min()).min(keepdims=True)
            self.high = np.append(self.high, flat.max()).max(keepdims=True)
            return
        self.low = np.sort(np.concatenate([self.low, flat]))[: self.kept]
        self.high = np.sort(np.concatenate([self.high, flat]))[-self.kept :]

    def range(self) -> Range:
        """Return the range of all values added."""
        if self.share == 0:
            low, high = self.low[0], self.high[-1]
        else:
            place = self.share * (self.count - 1)
            low = np.interp(place, np.arange(len(self.low)), self.low)
            high = np.interp(place, np.arange(len(self.high)), self.high[::-1])
        return Range(min(float(low), 0.0), max(float(high), 0.0))
