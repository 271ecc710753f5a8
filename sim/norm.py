"""Golden model of layer norm and RMS norm of INT16 rows: equation (4) of ``docs/numerics.md``."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError
from celosia.arch.norm import EPS_WIDTH, MAX_NORM_ROW, VALUE_FRACTION
from celosia.sim.reciprocal import rsqrt
from celosia.sim.requantize import quantize_multiplier, saturate16

MAX_BIAS = (1 << 31) - (1 << 23)
"""Largest bias that overflows 32 bits with no normalized value; those have a magnitude up to 91."""


def normalize(
    x: ArrayLike, r: ArrayLike | None = None, *, rms: bool, eps: int
) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Normalize the rows of ``x + r``; return (value, s), the rows after and before the norm.

    All arrays are [m, n]. ``x`` and ``r`` hold INT16.

    - ``s`` has the rows before the norm: ``sat16(x + r)``, or ``x`` if ``r`` is None.
    - ``value`` has the rows after the norm: ``(n * s - sum(s)) / sqrt(V)`` in units of ``2**-16``,
      with ``V = n * sum(s**2) - sum(s)**2 + eps``: equation (4) of ``docs/numerics.md``. It is
      rounded to nearest, ties up.

    ``V`` is exact, and its inverse square root has 17 bits. If ``V`` is 0, the row's values are 0.
    If ``rms`` is true (RMS norm), 0 replaces ``sum(s)``.

    Raises :class:`InputError` if a row is longer than 8192, or ``eps`` is not from 0 to ``2**56 -
    1``.
    """
    s = _summed(x, r, eps)  # [m, n]
    n = s.shape[-1]
    squares = np.sum(s * s, axis=-1, keepdims=True)  # [m, 1]
    total = np.zeros_like(squares) if rms else np.sum(s, axis=-1, keepdims=True)  # [m, 1]
    mantissa, exponent = rsqrt(n * squares - total * total + eps)  # [m, 1]
    right = np.maximum(-exponent - VALUE_FRACTION, 0)  # [m, 1]
    half = (np.int64(1) << right) >> 1
    value = ((n * s - total) * mantissa + half) >> right  # [m, n]
    return value.astype(np.int32), s.astype(np.int16)


def row_factors(
    x: ArrayLike, r: ArrayLike | None = None, *, eps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]:
    """Return (mantissa, right, s): the rows before an RMS norm, and a factor for each row.

    ``x`` [m, n] are INT16 rows, and ``r`` [m, n] is an INT16 residual or None. ``s`` [m, n] has the
    rows before the norm: ``sat16(x + r)``, or ``x`` if ``r`` is None.

    A row's factor is ``mantissa / 2**right``; ``mantissa`` and ``right`` have shape [m, 1]. The
    normalized row is ``s * n * mantissa / 2**right`` in units of ``2**-16``: equation (23) of
    ``docs/numerics.md``. ``mantissa`` has 17 bits. It is 0 if ``n * sum(s**2) + eps`` is 0.
    ``right`` is from 0 to 31.

    Raises :class:`InputError` if a row is longer than 8192, or ``eps`` is not from 0 to ``2**56 -
    1``.
    """
    s = _summed(x, r, eps)
    n = s.shape[-1]
    mantissa, exponent = rsqrt(n * np.sum(s * s, axis=-1, keepdims=True) + eps)
    return mantissa, np.maximum(-exponent - VALUE_FRACTION, 0), s.astype(np.int16)


def _summed(x: ArrayLike, r: ArrayLike | None, eps: int) -> NDArray[np.int64]:
    """Return the rows to normalize, [m, n]."""
    s = np.asarray(x, dtype=np.int64)
    n = s.shape[-1]
    if n > MAX_NORM_ROW:
        raise InputError(f"Normalized row must have at most {MAX_NORM_ROW} elements, not {n}")
    if not 0 <= eps < 1 << EPS_WIDTH:
        raise InputError(f"Added variance must be from 0 to 2**{EPS_WIDTH} - 1, not {eps}")
    return s if r is None else saturate16(s + np.asarray(r, dtype=np.int64)).astype(np.int64)


def quantize_eps(epsilon: float, *, n: int, scale: float) -> int:
    """Return the integer that a norm adds to ``n**2`` times the variance of rows of ``n`` elements.

    The integer is ``n**2 * epsilon / scale**2``, at most ``2**56 - 1``. ``epsilon`` is the constant
    of the float norm, and ``scale`` the quantization scale of the rows' elements.
    """
    return min(round(n * n * epsilon / (scale * scale)), (1 << EPS_WIDTH) - 1)


def norm_parameters(
    gamma: ArrayLike, beta: ArrayLike, y_scale: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
    """Return bias, multiplier and shift, each [n], of the requantization that ends a norm.

    ``gamma`` and ``beta``, both [n], are the factor and the bias of each column in the float norm.
    ``y_scale`` is the quantization scale of the output. The integer ``value`` that
    :func:`normalize` returns stands for the normalized value ``v = value * 2**-16``. Equation (1)
    of ``docs/numerics.md`` then computes ``(value + bias) * multiplier * 2**(shift - 31)``, which
    is ``(gamma * v + beta) / y_scale``. The multiplier has the sign of gamma.

    The bias is ``beta / gamma`` in units of ``2**-16``, the unit of ``value``. If ``abs(gamma)`` is
    less than about ``2**-15 * abs(beta)``, the sum ``value + bias`` could overflow 32 bits. The
    function then replaces gamma by a number of this magnitude and of the same sign. This changes
    the float output by at most about ``2**-15 * abs(v * beta)``.

    Raises :class:`InputError` if ``abs(gamma) / y_scale`` is 2**16 or more.
    """
    gammas = np.asarray(gamma, dtype=np.float64)
    betas = np.asarray(beta, dtype=np.float64)
    columns = [_column(float(g), float(b), y_scale) for g, b in zip(gammas, betas, strict=True)]
    bias, multiplier, shift = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    return bias.astype(np.int32), multiplier.astype(np.int32), shift.astype(np.int8)


def _column(gamma: float, beta: float, y_scale: float) -> tuple[int, int, int]:
    smallest = abs(beta) * (1 << VALUE_FRACTION) / MAX_BIAS
    if abs(gamma) < smallest:
        gamma = math.copysign(smallest, gamma)
    multiplier, shift = quantize_multiplier(gamma / (y_scale * (1 << VALUE_FRACTION)))
    if shift > 0:
        raise InputError(
            f"Norm's gamma must be less than 2**{VALUE_FRACTION} output steps, but gamma is "
            f"{gamma} and the output step is {y_scale}"
        )
    bias = round(beta / gamma * (1 << VALUE_FRACTION)) if gamma else 0
    return bias, multiplier, shift
