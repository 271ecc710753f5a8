"""Golden models of the reciprocal and the reciprocal square root of an integer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.polynomial import (
    FRACTION_WIDTH,
    MANTISSA_WIDTH,
    reciprocal_polynomial,
    rsqrt_polynomial,
)
from celosia.sim.polynomial import evaluate

_RECIPROCAL = reciprocal_polynomial()
_RSQRT = rsqrt_polynomial()


def normalize(x: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (fraction, exponent) of integers from 0 to ``2**64 - 1`` of any shape.

    The exponent of an integer is the position of its leading one, from bit 0 on. The fraction is
    the ``FRACTION_WIDTH`` bits below the leading one; lower bits are dropped. The exponent of 0 is
    0.
    """
    left = np.asarray(x).astype(np.uint64)
    exponent = np.where(left == 0, 0, 63)
    for step in (32, 16, 8, 4, 2, 1):
        short = (left >> np.uint64(64 - step)) == 0
        left = np.where(short, left << np.uint64(step), left)
        exponent = np.where(short & (left != 0), exponent - step, exponent)
    fraction = (left << np.uint64(1)) >> np.uint64(64 - FRACTION_WIDTH)
    return fraction.astype(np.int64), exponent


def reciprocal(x: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (mantissa, exponent): ``1 / x`` is approximately ``mantissa * 2**exponent``.

    ``x`` holds integers from 0 to ``2**64 - 1`` of any shape. The mantissa is from ``2**16`` to
    ``2**17 - 1``. If ``x`` is a power of two, the result is exact. If ``x`` is 0, mantissa and
    exponent are 0.
    """
    fraction, exponent = normalize(x)
    return _round(x, evaluate(_RECIPROCAL, fraction), exponent)


def rsqrt(x: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (mantissa, exponent): ``1 / sqrt(x)`` is approximately ``mantissa * 2**exponent``.

    ``x`` holds integers from 0 to ``2**64 - 1`` of any shape. The mantissa is from ``2**16`` to
    ``2**17 - 1``. If ``x`` is a power of four, the result is exact. If ``x`` is 0, mantissa and
    exponent are 0.
    """
    fraction, exponent = normalize(x)
    operand = fraction | (exponent & 1) << FRACTION_WIDTH
    return _round(x, evaluate(_RSQRT, operand), exponent >> 1)


def _round(
    x: NDArray[Any], y: NDArray[np.int64], exponent: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    zero = np.asarray(x) == 0
    carry = y >= 1 << MANTISSA_WIDTH
    mantissa = np.where(carry, 1 << (MANTISSA_WIDTH - 1), y)
    return (
        np.where(zero, 0, mantissa),
        np.where(zero, 0, carry - MANTISSA_WIDTH - exponent),
    )
