"""Elementwise addition and multiplication of INT8 tensors, equations (5) and (6)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arch.errors import InputError
from sim.requantize import MIN_SHIFT, requantize, rounding_high, rounding_shift

LEFT_SHIFT = 20
"""Fraction bits that both terms of an addition get before they are rescaled (bits)."""

Factor = tuple[int, int]
"""A requantization factor: ``multiplier * 2**(shift - 31)``."""


def add_sum(i: ArrayLike, r: ArrayLike, i_factor: Factor, r_factor: Factor) -> NDArray[np.int32]:
    """Return the sum inside equation (5), before the output's requantization.

    ``i`` and ``r`` are elements less their zero points, -255 to 255, of one shape or broadcast.
    Each is shifted left by 20 and rescaled by its factor with double rounding, as in TFLite.

    Raises :class:`InputError` where a factor's shift is not from -31 to 0.
    """
    total = _rescale(i, i_factor) + _rescale(r, r_factor)
    return total.astype(np.int32)


def _rescale(x: ArrayLike, factor: Factor) -> NDArray[np.int64]:
    multiplier, shift = factor
    if not MIN_SHIFT <= shift <= 0:
        raise InputError(f"Shift of an addition's input must be from {MIN_SHIFT} to 0, not {shift}")
    shifted = np.asarray(x, dtype=np.int64) << LEFT_SHIFT
    return rounding_shift(rounding_high(shifted, multiplier), -shift)


def mul_product(i: ArrayLike, r: ArrayLike) -> NDArray[np.int32]:
    """Return the product inside equation (6), before the output's requantization.

    ``i`` and ``r`` are elements less their zero points, -255 to 255, of one shape or broadcast.
    """
    product = np.asarray(i, dtype=np.int64) * np.asarray(r, dtype=np.int64)
    return product.astype(np.int32)


def add(
    i: ArrayLike,
    r: ArrayLike,
    *,
    i_zero: int,
    r_zero: int,
    i_factor: Factor,
    r_factor: Factor,
    factor: Factor,
    zero: int,
) -> NDArray[np.int8]:
    """Return equation (5), the INT8 sum of two INT8 tensors, exactly as TFLite's."""
    i = np.asarray(i, dtype=np.int64) - i_zero
    r = np.asarray(r, dtype=np.int64) - r_zero
    total = add_sum(i, r, i_factor, r_factor)
    return requantize(total, 0, *factor, zero, -128, 127).astype(np.int8)


def mul(
    i: ArrayLike, r: ArrayLike, *, i_zero: int, r_zero: int, factor: Factor, zero: int
) -> NDArray[np.int8]:
    """Return equation (6), the INT8 product of two INT8 tensors, exactly as TFLite's."""
    i = np.asarray(i, dtype=np.int64) - i_zero
    r = np.asarray(r, dtype=np.int64) - r_zero
    return requantize(mul_product(i, r), 0, *factor, zero, -128, 127).astype(np.int8)
