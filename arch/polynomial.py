"""Polynomials of degree 2 that approximate a function piece by piece, in fixed-point arithmetic.

Python fits the coefficients to the function when a circuit is generated or a model is quantized.
Circuits and golden models then evaluate the polynomials with integers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import Function

FRACTION_WIDTH = 22
"""Operand bits after the leading one that a reciprocal uses (bits)."""
MANTISSA_WIDTH = 17
"""Width of a reciprocal's mantissa (bits)."""
GUARD_WIDTH = 4
"""Extra low bits with which a polynomial is computed (bits)."""
OCTAVE_SEGMENTS = 32
"""Segments of a reciprocal's polynomials for each octave of the operand (segments)."""
FUNCTION_WIDTH = 16
"""Operand width of a function stored as polynomials in an activation table (bits)."""
FUNCTION_SEGMENTS = 32
"""Segments of such a function; each takes eight bytes of the table (segments)."""
FUNCTION_T_WIDTH = FUNCTION_WIDTH - (FUNCTION_SEGMENTS - 1).bit_length()
"""Width of an operand's position in its segment of such a function (bits)."""
FUNCTION_BOUND = 255.0
"""Magnitude to which results of such a function are clipped before the fit (result steps)."""
SLOPE_BITS = 17
"""Width of ``c1`` and ``c2`` of such a function (bits)."""


@dataclass(frozen=True, kw_only=True)
class Polynomial:
    """A function of integers, with one polynomial of degree 2 for each segment (range) of operands.

    The operand's low ``t_width`` bits are ``t``, the position in the segment; the bits above are
    the segment's number. With the segment's coefficients and ``>>`` towards minus infinity, the
    result is ``(c0 + ((c1 + (c2 * t >> t_width)) * t >> t_width)) >> guard_width``.
    """

    coefficients: tuple[tuple[int, int, int], ...]
    """``(c0, c1, c2)`` of each segment, in units of ``2**-guard_width`` of the result's last
    bit."""
    t_width: int
    """Width of the position in a segment (bits)."""
    guard_width: int = GUARD_WIDTH
    """Low bits dropped from the sum (bits); ``c0`` includes half a unit of the result for
    rounding."""

    @property
    def segments(self) -> int:
        """Number of segments (ranges of operands with one polynomial each), a power of two."""
        return len(self.coefficients)

    @property
    def x_width(self) -> int:
        """Width of the polynomial's operand (bits)."""
        return self.t_width + (self.segments - 1).bit_length()

    @property
    def widths(self) -> tuple[int, int, int]:
        """Widths of the coefficients ``c0``, ``c1`` and ``c2``, a tuple of three (bits).

        Each is the width of a signed number that holds this coefficient of every segment.
        """
        c0, c1, c2 = (max(_signed_width(row[i]) for row in self.coefficients) for i in range(3))
        return c0, c1, c2

    @property
    def slope_width(self) -> int:
        """Width of the slope ``c1 + (c2 * t >> t_width)``, a signed number (bits).

        ``c1`` and ``c2`` are coefficients of a segment, and ``t`` is the operand's position in the
        segment, a number of ``t_width`` bits. The width is sufficient for all operands.
        """
        return max(
            max(_signed_width(c1), _signed_width(c1 + c2)) for _, c1, c2 in self.coefficients
        )

    @property
    def sum_width(self) -> int:
        """Width of the polynomial's signed sum, before the shift by ``guard_width`` (bits).

        The width is sufficient for all operands.
        """
        return max(
            _signed_width(abs(c0) + abs(c1) + abs(c2) + 1) for c0, c1, c2 in self.coefficients
        )

    @property
    def y_width(self) -> int:
        """Width of a polynomial's result, a signed number (bits)."""
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
    """Return polynomials of degree 2 that interpolate a function in equal segments of its operands.

    ``function`` maps arrays of operands to results, both in units of their lowest bit. It is
    evaluated at three Chebyshev nodes inside each segment. Operands have ``x_width`` bits. Raises
    :class:`InputError` if ``segments`` is not a power of two from 2 to ``2**x_width``.
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
    # Half a unit rounds the result; half a guard unit centers the bits that the inner shifts drop.
    real[0] += (1 << (GUARD_WIDTH - 1)) + 0.5
    integers = np.rint(real).astype(np.int64)
    return Polynomial(
        coefficients=tuple((int(c0), int(c1), int(c2)) for c0, c1, c2 in integers.T),
        t_width=(length - 1).bit_length(),
    )


def reciprocal_polynomial() -> Polynomial:
    """Return a :class:`Polynomial` that approximates ``2**17 / (1 + f)``.

    The operand is an unsigned integer of ``FRACTION_WIDTH`` bits. The fraction ``f`` is the operand
    divided by ``2**FRACTION_WIDTH``.
    """
    return fit(
        lambda x: 2.0**MANTISSA_WIDTH / (1 + x / 2**FRACTION_WIDTH),
        x_width=FRACTION_WIDTH,
        segments=2 * OCTAVE_SEGMENTS,
        signed=False,
    )


def rsqrt_polynomial() -> Polynomial:
    """Return a :class:`Polynomial` that approximates ``2**17 / sqrt((1 + f) * 2**odd)``.

    The operand is an unsigned integer of ``FRACTION_WIDTH + 1`` bits. Its highest bit is ``odd``.
    The fraction ``f`` is the number in its other bits, divided by ``2**FRACTION_WIDTH``.
    """

    def function(x: NDArray[np.float64]) -> NDArray[np.float64]:
        odd = x >= 1 << FRACTION_WIDTH
        fraction = x / 2**FRACTION_WIDTH - odd
        return np.asarray(2.0**MANTISSA_WIDTH / np.sqrt((1 + fraction) * (1 + odd)))

    return fit(function, x_width=FRACTION_WIDTH + 1, segments=2 * OCTAVE_SEGMENTS, signed=False)


def function_table(
    function: Function, x_scale: float, y_scale: float, y_zero: int
) -> NDArray[np.int64]:
    """Return a function's polynomials as the bytes of an activation table, [256].

    The bytes encode the result of :func:`function_polynomial`, which has the same arguments and
    raises the same errors.
    """
    return pack_polynomial(function_polynomial(function, x_scale, y_scale, y_zero))


def function_polynomial(
    function: Function, x_scale: float, y_scale: float, y_zero: int
) -> Polynomial:
    """Return polynomials that compute a function's quantized results from signed 16-bit operands.

    Operand ``q`` means ``x_scale * q``, and result ``y`` means ``y_scale * (y - y_zero)``. Results
    are clipped at ``FUNCTION_BOUND``; the caller clamps them to their type. Raises
    :class:`InputError` if a scale is not positive and finite.
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

    Each of the 32 segments (ranges of operands) has eight bytes: ``c0`` in two, then ``c1`` and
    ``c2`` in three each, lowest byte first. The segment of the most negative operands is first.
    """
    rows = np.roll(np.array(polynomial.coefficients, np.int64), FUNCTION_SEGMENTS // 2, axis=0)
    c0, c1, c2 = rows.T  # [segments]
    columns = [c0, c0 >> 8, *(c >> shift for c in (c1, c2) for shift in (0, 8, 16))]
    raw = np.stack(columns, axis=1).ravel() & 0xFF  # [256]
    return np.asarray(raw - (raw >> 7 << 8))


def unpack_polynomial(table: NDArray[Any]) -> Polynomial:
    """Return the :class:`Polynomial` that is encoded in an activation table [256].

    The bytes have the format of :func:`pack_polynomial`; any bytes are valid. Only the low 17 bits
    of ``c1`` and ``c2`` are used, in two's complement.
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
