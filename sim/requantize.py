"""Golden model of requantization of 32-bit sums: equation (1) of ``docs/numerics.md``."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError

INT16_MIN = -(1 << 15)
INT16_MAX = (1 << 15) - 1
MIN_SHIFT = -31
MAX_SHIFT = 30


def wrap32(x: ArrayLike) -> NDArray[np.int64]:
    """Return integers modulo 2**32 as signed integers."""
    half = 1 << 31
    return ((np.asarray(x, dtype=np.int64) + half) & 0xFFFF_FFFF) - half


def saturate16(x: ArrayLike) -> NDArray[np.int16]:
    """Return integers clamped to the range of INT16."""
    return np.clip(np.asarray(x, dtype=np.int64), INT16_MIN, INT16_MAX).astype(np.int16)


def rounding_high(x: ArrayLike, m: ArrayLike) -> NDArray[np.int64]:
    """Return ``(x * m + 2**30) >> 31`` for 32-bit ``x`` and ``m``.

    This is gemmlowp's SaturatingRoundingDoublingHighMul with one exception. For ``x = m = -2**31``,
    the result is 2**31, which needs 33 bits, instead of 2**31 - 1.
    """
    x = np.asarray(x, dtype=np.int64)
    m = np.asarray(m, dtype=np.int64)
    high: NDArray[np.int64] = (x * m + (1 << 30)) >> 31
    return high


def rounding_shift(x: ArrayLike, e: ArrayLike) -> NDArray[np.int64]:
    """Return ``x / 2**e`` rounded to nearest, ties away from zero, for ``e`` from 0 to 31.

    This is gemmlowp's RoundingDivideByPOT, with ``x`` of up to 62 bits.
    """
    x = np.asarray(x, dtype=np.int64)
    e = np.asarray(e, dtype=np.int64)
    half = (np.int64(1) << e) >> 1
    rounded: NDArray[np.int64] = (x + half - ((x < 0) & (e > 0))) >> e
    return rounded


def requantize(
    x: ArrayLike,
    bias: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
) -> NDArray[np.int32]:
    """Return 32-bit sums ``x``, requantized by equation (1) of ``docs/numerics.md``.

    1. ``x + bias`` is shifted left by a positive ``shift``, and wraps at 32 bits.
    2. The result is multiplied by ``multiplier / 2**31`` and rounded, ties up.
    3. A negative ``shift`` shifts right and rounds, ties away from zero.
    4. ``zero`` is added; the sum is clamped to ``low`` and ``high``.

    Raises :class:`InputError` if a shift is not from -31 to 30.
    """
    shift = np.asarray(shift, dtype=np.int64)
    if shift.size and not MIN_SHIFT <= shift.min() <= shift.max() <= MAX_SHIFT:
        wrong = shift.min() if shift.min() < MIN_SHIFT else shift.max()
        raise InputError(f"Shift must be from {MIN_SHIFT} to {MAX_SHIFT}, not {wrong}")
    biased = wrap32(np.asarray(x, dtype=np.int64) + np.asarray(bias, dtype=np.int64))
    doubled = rounding_high(wrap32(biased << np.maximum(shift, 0)), multiplier)
    y = rounding_shift(doubled, np.maximum(-shift, 0)) + np.asarray(zero, dtype=np.int64)
    return np.minimum(np.maximum(y, low), high).astype(np.int32)


def times_factor(
    multiplier: ArrayLike, shift: ArrayLike, mantissa: ArrayLike, right: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (multiplier, shift) of a requantization scale times a row's factor.

    The scale is ``multiplier * 2**(shift - 31)``; ``multiplier`` must be 0 or at least 2**30 in
    magnitude. The factor is ``mantissa / 2**right``, with a mantissa of 17 bits. The product has 15
    significant bits, and its shift is clamped to -31..30.
    """
    product = (np.asarray(multiplier, np.int64) >> 16) * np.asarray(mantissa, np.int64)
    big = (np.abs(product) >> 31).astype(np.int64)
    shifts = np.asarray(shift, np.int64) + 16 - np.asarray(right, np.int64) + big
    return product >> 16 + big << 16, np.clip(shifts, MIN_SHIFT, MAX_SHIFT)


class FactorError(InputError):
    """Error for a real factor that no requantization multiplier and shift can represent."""


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return ``(multiplier, shift)`` nearest to a real factor, as TFLite's QuantizeMultiplier does.

    The factor is ``multiplier * 2**(shift - 31)``, to 31 significant bits. A magnitude below 2**-32
    gives ``(0, 0)``. Raises :class:`FactorError` if the factor is not finite, or its magnitude is
    2**30 or more.
    """
    if not math.isfinite(real):
        raise FactorError(f"Requantization factor must be finite, not {real}")
    fraction, shift = math.frexp(abs(real))
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier >>= 1
        shift += 1
    if shift > MAX_SHIFT:
        raise FactorError(f"Requantization factor must be less than 2**{MAX_SHIFT}, not {real}")
    if shift < MIN_SHIFT:
        return 0, 0
    return (multiplier if real >= 0 else -multiplier), (shift if multiplier else 0)
