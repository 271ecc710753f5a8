"""Functions that choose quantization scales, most of them by the least squared error."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.weights import Floats
from celosia.generators.quantize.options import NARROW_BITS
from celosia.generators.quantize.policy import CLIPS
from celosia.sim.requantize import INT16_MAX

INT8_MAX = (1 << NARROW_BITS - 1) - 1
HEADROOM = 2.0
"""Ratio by which an INT16 value may exceed calibration's largest before it saturates."""
_SHARES = np.linspace(1.0, 0.5, 11)
"""Shares of the distance from the smallest to the largest value that a narrow range may cover."""
_PLACES = np.linspace(0.0, 1.0, 9)
"""Candidates within that distance, as fractions from one end to the other."""
HALF = 8
"""Half of the INT8 steps in a step of the upper four bits."""


def wide_step(values: Floats) -> float:
    """Return the scale at which INT16 has room for twice the largest magnitude of ``values``.

    If all values are 0, it returns 1.
    """
    return wide_scale([float(np.abs(values).max())]) or 1.0


def wide_scale(sizes: Sequence[float]) -> float:
    """Return the scale at which the largest of ``sizes`` is half of the largest INT16 integer.

    ``sizes`` has the largest magnitude of each tensor that gets this scale. The other half of the
    range is headroom for inputs with larger values.
    """
    return HEADROOM * float(max(sizes)) / INT16_MAX


def best_step(values: Floats, most: int, clips: Sequence[float] = CLIPS) -> float:
    """Return the scale at which integers from -``most`` to ``most`` have the least squared error.

    The function tries the scale ``clip * largest / most`` for each ``clip`` in ``clips``.
    ``largest`` is the largest magnitude of ``values``; a ``clip`` below 1 saturates the largest
    values.
    """
    return float(best_steps(values.reshape(-1, 1), most, clips)[0])


def best_steps(values: Floats, most: int, clips: Sequence[float] = CLIPS) -> Floats:
    """Return the scales [n] that :func:`best_step` chooses for the columns of values [m, n]."""
    largest = np.abs(values).max(axis=0)
    largest[largest == 0] = 1.0
    return least_error(
        values,
        [clip * largest / most for clip in clips],
        lambda x: np.clip(np.rint(x), -most, most),
    )


def least_error(
    values: Floats, tried: Sequence[Floats], rounded: Callable[[Floats], NDArray[Any]]
) -> Floats:
    """Return for each column of ``values`` [m, n] the scale with the least squared error, [n].

    ``tried`` is a list of candidates; each is an array [n] with a scale for each column. The
    function ``rounded`` takes ``values / scale``, and returns the represented numbers. If there is
    only one candidate, the result is this candidate.
    """
    steps, least = tried[0], np.full(values.shape[1], np.inf)
    for step in tried if len(tried) > 1 else ():
        error = rounded(values / step) * step - values
        loss = np.sum(error * error, axis=0)
        steps = np.where(loss < least, step, steps)
        least = np.minimum(loss, least)
    return np.asarray(steps)


def best_range(values: Floats, bits: int, together: int = 1) -> tuple[Floats, Floats]:
    """Return the middle and the scale of each column of values [m, n] with the least squared error.

    The two arrays are [n]. A value becomes ``round((value - middle) / scale)``, clamped to signed
    ``bits`` bits. Groups of ``together`` adjacent columns share a scale.
    """
    least = np.full(values.shape[1], np.inf)
    middle, steps = np.zeros_like(least), np.ones_like(least)
    for share in _SHARES if bits < NARROW_BITS else _SHARES[:1]:
        start, step, loss = _range_of(values, bits, together, share)
        middle, steps = np.where(loss < least, (start, step), (middle, steps))
        least = np.minimum(loss, least)
    return middle, steps


def kept_range(values: Floats, bits: int, together: int = 1) -> tuple[Floats, Floats]:
    """Return offsets and scales [n] of columns of values [m, n] that are stored in 8 or 4 bits.

    A value becomes the INT8 integer ``round((value - offset) / scale)``. With 4 bits, the stored
    number u stands for ``offset + scale * (16 * u + 8)``. Groups of ``together`` adjacent columns
    share a scale.
    """
    middle, steps = best_range(values, bits, together)
    if bits == NARROW_BITS:
        return middle, steps
    fine = steps / (1 << NARROW_BITS - bits)
    return middle - HALF * fine, fine


def spread_range(values: Floats, together: int = 1) -> tuple[Floats, Floats]:
    """Return the means and the INT8 scales of the columns of values [m, n], as two arrays [n].

    Groups of ``together`` adjacent columns share a scale. All scales are the same multiple of their
    columns' standard deviation, the smallest with which all values fit INT8.
    """
    middle = values.mean(axis=0)
    deviation = (values - middle).reshape(len(values), -1, together)
    spread = np.sqrt(np.mean(deviation * deviation, axis=(0, 2)))
    spread = np.repeat(np.where(spread > 0, spread, 1.0), together)
    most = float(np.max(np.abs(values - middle) / spread)) or 1.0
    return middle, spread * (most / INT8_MAX)


def upper_step(values: Floats, bits: int) -> float:
    """Return the scale at which the upper ``bits`` bits of INT8 integers represent ``values`` best.

    The upper bits stand for the mean of all INT8 integers that begin with these bits. The function
    tries several scales, and returns the scale with the least squared error.
    """
    most, half = float(np.abs(values).max()) or 1.0, 1 << (bits - 1)
    tried = [np.array([clip * most / half]) for clip in CLIPS]
    flat = values.reshape(-1, 1)
    (best,) = least_error(flat, tried, lambda x: np.clip(np.floor(x), -half, half - 1) + 0.5)
    return float(best) / (1 << NARROW_BITS - bits)


def _range_of(
    values: Floats, bits: int, together: int, share: float
) -> tuple[Floats, Floats, Floats]:
    """Return middle, step and squared error of columns if a share of their range is covered."""
    low, high = values.min(axis=0), values.max(axis=0)
    half = 1 << (bits - 1)
    widest = (high - low).reshape(-1, together).max(axis=1)
    width = np.repeat(np.where(widest > 0, widest, 1.0), together)
    step = share * width / (2 * half - 1)
    start, loss = np.zeros_like(low), np.full_like(low, np.inf)
    for place in _PLACES:
        tried = low + place * (high - low - share * width) + half * step
        error = np.clip(np.rint((values - tried) / step), -half, half - 1) * step
        losses = np.sum((error + tried - values) ** 2, axis=0)
        start, loss = np.where(losses < loss, (tried, losses), (start, loss))
    return start, step, np.repeat(loss.reshape(-1, together).sum(axis=1), together)
