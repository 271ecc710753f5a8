"""Steps of integers that lose least: of a tensor, of its columns, and of keys that are kept."""

import math

import numpy as np
from numpy.typing import NDArray

from generators.frontend.weights import Floats

_CLIPS = np.geomspace(1.0, 0.5, 9)
"""Shares of the largest magnitude that a range may cover."""
_SHARES = np.linspace(1.0, 0.5, 11)
"""Shares of the distance from the smallest to the largest value that a narrow range may cover."""
_PLACES = np.linspace(0.0, 1.0, 9)
"""Candidates within that distance, as fractions from one end to the other."""
NARROW_BITS = 8
"""Width below which ranges leave out rare values (bits)."""
TEXTS, EVERY = 6, 8
"""Texts on which attention is compared, and the distance between compared places."""


def best_step(values: Floats, most: int) -> float:
    """Return the step of the least squared error for values clamped to ``most`` steps.

    A tensor of zeros has the step ``1 / most``.
    """
    return float(best_steps(values.reshape(-1, 1), most)[0])


def best_steps(values: Floats, most: int) -> Floats:
    """Return the step of each column [n] of some values [m, n], as :func:`best_step`."""
    largest = np.abs(values).max(axis=0)
    largest[largest == 0] = 1.0
    steps, least = largest / most, np.full(len(largest), np.inf)
    for clip in _CLIPS:
        step = clip * largest / most
        error = np.clip(np.rint(values / step), -most, most) * step - values
        loss = np.sum(error * error, axis=0)
        steps = np.where(loss < least, step, steps)
        least = np.minimum(loss, least)
    return np.asarray(steps)


def best_range(values: Floats, bits: int, together: int = 1) -> tuple[Floats, Floats]:
    """Return middle and step of each column [n] with the least squared error in so many bits.

    Values [m, n] become ``round((value - middle) / step)``, clamped to signed ``bits`` bits. Each
    ``together`` neighbours have one step.
    """
    least = np.full(values.shape[1], np.inf)
    middle, steps = np.zeros_like(least), np.ones_like(least)
    for share in _SHARES if bits < NARROW_BITS else _SHARES[:1]:
        start, step, loss = _range_of(values, bits, together, share)
        middle, steps = np.where(loss < least, (start, step), (middle, steps))
        least = np.minimum(loss, least)
    return middle, steps


def attention_range(
    keys: Floats, queries: Floats, bits: int, together: int, copies: list[int]
) -> tuple[Floats, Floats]:
    """Return middle and step of each column of a head's keys that change attention least.

    ``keys`` [texts, n, head_dim] are attended to by ``queries`` [texts, group, n, head_dim]. Each
    ``together`` neighbours have one step; each column is kept ``copies`` times, as
    :func:`copied_middle` tells. From the last columns to the first, and beginning with
    :func:`best_range`, each takes the range with the least Kullback-Leibler divergence of the
    probabilities from those of the exact keys, over some of the texts and places.
    """
    keys, places = keys[:TEXTS], np.arange(EVERY - 1, keys.shape[1], EVERY)
    rows = queries[:TEXTS, :, places].reshape(len(keys), -1, keys.shape[2])  # [texts, rows, d]
    seen = np.tile(np.arange(keys.shape[1]) <= places[:, None], (queries.shape[1], 1))
    flat = keys.reshape(-1, keys.shape[2])
    middle, steps = best_range(flat, bits, together)

    def scores(columns: slice, kept: Floats) -> Floats:
        part = kept.reshape(*keys.shape[:2], -1)
        found = rows[:, :, columns] @ part.swapaxes(1, 2) / math.sqrt(keys.shape[2])
        return np.asarray(found)

    def logarithms(values: Floats) -> Floats:
        values = np.where(seen, values, -np.inf)
        values = values - values.max(axis=-1, keepdims=True)
        return np.asarray(values - np.log(np.exp(values).sum(axis=-1, keepdims=True)))

    def kept(columns: slice, start: Floats, step: Floats) -> Floats:
        return _kept(flat[:, columns], start, step, bits, copies[columns.start])

    groups = [slice(first, first + together) for first in range(0, keys.shape[2], together)]
    exact = logarithms(scores(slice(None), flat))
    probabilities = np.exp(exact)
    parts = [scores(one, kept(one, middle[one], steps[one])) for one in groups]
    for index, one in reversed([*enumerate(groups)]):
        others = np.sum(parts[:index] + parts[index + 1 :], axis=0)
        least = math.inf
        for share in _SHARES:
            start, step, _ = _range_of(flat[:, one], bits, together, share)
            part = scores(one, kept(one, start, step))
            moved = np.subtract(
                exact, logarithms(others + part), out=np.zeros_like(exact), where=seen
            )
            loss = float(np.sum(probabilities * moved))
            if loss < least:
                least, parts[index] = loss, part
                middle[one], steps[one] = start, step
    return middle, steps


def copied_middle(
    middle: Floats, step: Floats, copies: NDArray[np.int64], copy: NDArray[np.int64]
) -> Floats:
    """Return the middle of one of several copies, which lie ``step / copies`` apart."""
    return np.asarray(middle + step * ((copy + 0.5) / copies - 0.5))


def _kept(values: Floats, middle: Floats, step: Floats, bits: int, copies: int) -> Floats:
    """Return what values are once they are kept, as the mean of their copies."""
    half = 1 << (bits - 1)
    total = np.zeros_like(values)
    for copy in range(copies):
        origin = copied_middle(middle, step, np.array(copies), np.array(copy))
        total += np.clip(np.rint((values - origin) / step), -half, half - 1) * step + origin
    return total / copies


def _range_of(
    values: Floats, bits: int, together: int, share: float
) -> tuple[Floats, Floats, Floats]:
    """Return middle, step and squared error of columns where a share of their range is covered."""
    low, high = values.min(axis=0), values.max(axis=0)
    half = 1 << (bits - 1)
    widest = (high - low).reshape(-1, together).max(axis=1)
    width = np.repeat(np.where(widest > 0, widest, 1.0), together)
    step = share * width / (2 * half - 1)
    start, loss = np.zeros_like(low), np.full_like(low, np.inf)
    for place in _PLACES:
        tried = low + place * (high - low - share * width) + half * step
        error = np.clip(np.rint((values - tried) / step), -half, half - 1) * step
        found = np.sum((error + tried - values) ** 2, axis=0)
        start, loss = np.where(found < loss, (tried, found), (start, loss))
    return start, step, np.repeat(loss.reshape(-1, together).sum(axis=1), together)
