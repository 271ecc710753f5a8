"""Piecewise polynomials in fixed point, fitted to a formula when they are needed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import Function

FRACTION_WIDTH = 22
"""Bits after the leading one of an operand that a reciprocal looks at (bits)."""
MANTISSA_WIDTH = 17
"""Width of the mantissa of a reciprocal (bits)."""
GUARD_WIDTH = 4
"""Bits below the result's least significant one that a polynomial is computed with (bits)."""
OCTAVE_SEGMENTS = 32
"""Segments that a reciprocal's polynomials spend on each octave of the operand (segments)."""
FUNCTION_WIDTH = 16
"""Width of the operands of functions whose polynomials are in an activation table (bits)."""
FUNCTION_SEGMENTS = 32
"""Segments of such a function: eight bytes of the table each (segments)."""
FUNCTION_T_WIDTH = FUNCTION_WIDTH - (FUNCTION_SEGMENTS - 1).bit_length()
"""Width of the position within a segment of such a function (bits)."""
FUNCTION_BOUND = 255.0
"""Largest magnitude that polynomials of such a function follow, in steps of an INT8 (steps)."""
SLOPE_BITS = 17
"""Width of ``c1`` and ``c2`` of such a function (bits)."""


@dataclass(frozen=True, kw_only=True)
class Polynomial:
    """One polynomial of degree 2 for each segment of the operand, over integers.

    The operand is ``x_width`` raw bits: the segment above, ``t`` (``t_width`` bits) below. With
    ``>>`` rounding towards minus infinity, the result is::

        (c0 + ((c1 + (c2 * t >> t_width)) * t >> t_width)) >> guard_width

    """

    coefficients: tuple[tuple[int, int, int], ...]
    """Each segment's ``(c0, c1, c2)`` in units of ``2**-guard_width`` of the result's."""
    t_width: int
    """Width of the position within a segment (bits)."""
    guard_width: int = GUARD_WIDTH
    """Bits dropped from the sum; half of the result's unit is part of ``c0`` (bits)."""

    @property
    def segments(self) -> int:
        """Number of segments, a power of two."""
        return len(self.coefficients)

    @property
    def x_width(self) -> int:
        """Width of the operand (bits)."""
        return self.t_width + (self.segments - 1).bit_length()

    @property
    def widths(self) -> tuple[int, int, int]:
        """Signed widths that hold every ``c0``, ``c1`` and ``c2`` (bits)."""
        c0, c1, c2 = (max(_signed_width(row[i]) for row in self.coefficients) for i in range(3))
        return c0, c1, c2

    @property
    def slope_width(self) -> int:
        """Signed width that holds every ``c1 + (c2 * t >> t_width)`` (bits)."""
        return max(
            max(_signed_width(c1), _signed_width(c1 + c2)) for _, c1, c2 in self.coefficients
        )

    @property
    def sum_width(self) -> int:
        """Signed width that holds every sum before the guard bits are dropped (bits)."""
        return max(
            _signed_width(abs(c0) + abs(c1) + abs(c2) + 1) for c0, c1, c2 in self.coefficients
        )

    @property
    def y_width(self) -> int:
        """Signed width of the result (bits)."""
        return self.sum_width - self.guard_width


def _signed_width(value: int) -> int:
    return (value if value >= 0 else ~value).bit_length() + 1


def fit(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    x_width: int,
    segments: int,
    signed: bool,
) -> Polynomial:
    """Return the polynomials that interpolate a function at each segment's Chebyshev nodes.

    ``function`` maps operands in units of their last bit to results in units of theirs, and is
    called only inside of segments, so that it may have a kink where two meet. The operand's raw
    bits are two's complement where ``signed``, unsigned otherwise.
    Raises :class:`InputError` where ``segments`` is not a power of two from 2 to ``2**x_width``.
    """
    if segments < 2 or segments & (segments - 1) or segments > 1 << x_width:
        raise InputError(
            f"Polynomial segments must be a power of two from 2 to {1 << x_width}, not {segments}"
        )
    index = np.arange(segments)  # [segments]
    start = np.where(signed & (index >= segments // 2), index - segments, index)
    length = (1 << x_width) // segments
    nodes = 0.5 + 0.5 * np.cos(np.pi * np.array([5.0, 3.0, 1.0]) / 6)  # [3] in (0, 1)
    values = function((start[None, :] + nodes[:, None]) * length)  # [3, segments]
    powers = nodes[:, None] ** np.arange(3)[None, :]  # [3, 3]
    real = np.linalg.solve(powers, values) * (1 << GUARD_WIDTH)  # [3, segments]
    # Half a unit rounds the result; half a guard unit centers what the two inner shifts drop.
    real[0] += (1 << (GUARD_WIDTH - 1)) + 0.5
    integers = np.rint(real).astype(np.int64)
    return Polynomial(
        coefficients=tuple((int(c0), int(c1), int(c2)) for c0, c1, c2 in integers.T),
        t_width=(length - 1).bit_length(),
    )


def reciprocal_polynomial() -> Polynomial:
    """Return ``2**17 / (1 + f)`` over a fraction ``f`` of ``FRACTION_WIDTH`` raw bits."""
    return fit(
        lambda x: 2.0**MANTISSA_WIDTH / (1 + x / 2**FRACTION_WIDTH),
        x_width=FRACTION_WIDTH,
        segments=2 * OCTAVE_SEGMENTS,
        signed=False,
    )


def rsqrt_polynomial() -> Polynomial:
    """Return ``2**17 / sqrt((1 + f) * 2**odd)`` over the raw bits of ``f``, ``odd`` above them."""

    def function(x: NDArray[np.float64]) -> NDArray[np.float64]:
        odd = x >= 1 << FRACTION_WIDTH
        fraction = x / 2**FRACTION_WIDTH - odd
        return np.asarray(2.0**MANTISSA_WIDTH / np.sqrt((1 + fraction) * (1 + odd)))

    return fit(function, x_width=FRACTION_WIDTH + 1, segments=2 * OCTAVE_SEGMENTS, signed=False)


def function_table(
    function: Function, x_scale: float, y_scale: float, y_zero: int
) -> NDArray[np.int64]:
    """Return :func:`function_polynomial` as the bytes of an activation table, [256]."""
    return pack_polynomial(function_polynomial(function, x_scale, y_scale, y_zero))


def function_polynomial(
    function: Function, x_scale: float, y_scale: float, y_zero: int
) -> Polynomial:
    """Return a function of 16-bit operands as polynomials that give quantized results.

    Operand ``q`` stands for ``x_scale * q``, result ``y`` for ``y_scale * (y - y_zero)``. Results
    are rounded to nearest; those beyond ``FUNCTION_BOUND`` are not followed further, so that
    coefficients have the widths of :func:`pack_polynomial`, and clamping is left to who evaluates.
    Raises :class:`InputError` where a scale is not positive and finite.
    """
    for name, scale in (("x_scale", x_scale), ("y_scale", y_scale)):
        if not 0 < scale < math.inf:
            raise InputError(f"Polynomial {name} must be positive and finite, not {scale!r}")

    def in_steps(x: NDArray[np.float64]) -> NDArray[np.float64]:
        y = function(x_scale * x) / y_scale + y_zero
        return np.asarray(np.clip(y, -FUNCTION_BOUND, FUNCTION_BOUND))

    return fit(in_steps, x_width=FUNCTION_WIDTH, segments=FUNCTION_SEGMENTS, signed=True)


def pack_polynomial(polynomial: Polynomial) -> NDArray[np.int64]:
    """Return a function's polynomials as the signed bytes of an activation table, [256].

    Segment by segment, that of the lowest operand first: ``c0`` in two bytes, ``c1`` and ``c2`` in
    three each, lowest byte first.
    """
    rows = np.roll(np.array(polynomial.coefficients, np.int64), FUNCTION_SEGMENTS // 2, axis=0)
    c0, c1, c2 = rows.T  # [segments]
    columns = [c0, c0 >> 8, *(c >> shift for c in (c1, c2) for shift in (0, 8, 16))]
    raw = np.stack(columns, axis=1).ravel() & 0xFF  # [256]
    return np.asarray(raw - (raw >> 7 << 8))


def unpack_polynomial(table: NDArray[Any]) -> Polynomial:
    """Return the polynomials that the bytes of an activation table [256] are, whatever they are.

    Of ``c1`` and ``c2`` only the low ``SLOPE_BITS`` count, as two's complement.
    """
    raw = np.asarray(table, np.int64).reshape(FUNCTION_SEGMENTS, -1) & 0xFF  # [segments, 8]
    parts = ((0, 2, 16), (2, 5, SLOPE_BITS), (5, 8, SLOPE_BITS))
    rows = np.stack(
        [_signed(raw[:, low:high] @ (1 << 8 * np.arange(high - low)), w) for low, high, w in parts],
        axis=1,
    )  # [segments, 3]
    coefficients = np.roll(rows, -(FUNCTION_SEGMENTS // 2), axis=0)
    return Polynomial(
        coefficients=tuple((int(c0), int(c1), int(c2)) for c0, c1, c2 in coefficients),
        t_width=FUNCTION_T_WIDTH,
    )


def _signed(values: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    half = 1 << (width - 1)
    return np.asarray((values + half) % (1 << width) - half)
