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
    """Return (value, s): normalized rows and sums ``s = sat16(x + r)`` of INT16 rows [m, n].

    ``value`` is ``(n * s - sum(s)) / sqrt(V)`` in units of ``2**-16``, rounded to nearest, ties up,
    with ``V = n * sum(s**2) - sum(s)**2 + eps`` (equation (4) of ``docs/numerics.md``). ``rms``
    replaces ``sum(s)`` by 0. If V is 0, value is 0. Raises :class:`InputError` if n is above 8192
    or ``eps`` not from 0 to ``2**56 - 1``.
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
    """Return (mantissa, right, s): factors of an RMS norm, and sums ``s = sat16(x + r)`` [m, n].

    The normalized row is ``s * n * mantissa / 2**right`` in units of ``2**-16``: equation (23) of
    ``docs/numerics.md``. The mantissa [m, 1] has 17 bits. Raises the errors of :func:`normalize`.
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
    """Return the bias, multiplier and shift, [n] each, that requantize the output of a norm.

    The result maps normalized elements v (:func:`normalize`) to ``(gamma * v + beta) / y_scale``.
    If ``abs(gamma)`` is below about ``2**-15 * abs(beta)``, this bound replaces it. Raises
    :class:`InputError` if ``abs(gamma) / y_scale`` is 2**16 or more.
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
