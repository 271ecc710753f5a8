"""Golden model of piecewise polynomials in fixed point."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.polynomial import Polynomial, unpack_polynomial


def evaluate(polynomial: Polynomial, x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the integer values of the piecewise ``polynomial`` for integers ``x`` [...].

    Only the low ``x_width`` bits of ``x`` are used, so two's complement operands need no
    conversion. Rounding is that of :class:`Polynomial`.
    """
    coefficients = np.array(polynomial.coefficients, dtype=np.int64)  # [segments, 3]
    width = polynomial.t_width
    raw = np.asarray(x).astype(np.int64) & ((1 << polynomial.x_width) - 1)
    c0, c1, c2 = np.moveaxis(coefficients[raw >> width], -1, 0)
    t = raw & ((1 << width) - 1)
    slope = c1 + (c2 * t >> width)
    return np.asarray((c0 + (slope * t >> width)) >> polynomial.guard_width)


def evaluate_table(table: NDArray[Any], x: NDArray[Any], low: int, high: int) -> NDArray[np.int64]:
    """Return an activation function of ``x``, evaluated by the polynomials in an activation table.

    See equation (17) of ``docs/numerics.md``. ``table`` has 256 bytes, which encode the
    polynomials. ``x`` holds 16-bit operands of any shape. Results are clamped to ``low`` and
    ``high``.
    """
    return np.clip(evaluate(unpack_polynomial(table), x), low, high)
