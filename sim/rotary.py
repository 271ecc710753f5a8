"""Golden model of rotary position embedding, and of the elementwise product of two inputs.

See equations (9) and (10) of ``docs/numerics.md``.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.errors import InputError

ROTARY_FRACTION = 15
"""Fraction bits of a cosine or sine (bits)."""
PRODUCT_FRACTION = 4
"""Fraction bits of the product of an output and a second input (bits)."""
NARROW_FRACTION = 8
"""Additional bits rounded off for an 8-bit output, compared with a 16-bit one (bits)."""


def rotate(
    y: ArrayLike, pairs: ArrayLike, low: int, high: int, *, wide: bool = False
) -> NDArray[np.int16]:
    """Return INT16 ``y`` [..., n] with each pair of columns, 2j and 2j + 1, rotated by an angle.

    ``pairs`` [..., n] has the angle's cosine in column 2j and its sine in column 2j + 1, in Q1.15.
    If ``wide`` is false, results are divided by 256. Results are rounded, ties up, and clamped to
    ``low`` and ``high``.
    """
    y, pairs = np.asarray(y, np.int64), np.asarray(pairs, np.int64)
    y0, y1 = y[..., 0::2], y[..., 1::2]  # [..., n / 2]
    cosine, sine = pairs[..., 0::2], pairs[..., 1::2]  # [..., n / 2]
    rotated = np.empty(np.broadcast_shapes(y.shape, pairs.shape), np.int64)  # [..., n]
    rotated[..., 0::2] = y0 * cosine - y1 * sine
    rotated[..., 1::2] = y0 * sine + y1 * cosine
    return _round(rotated, ROTARY_FRACTION, low, high, wide)


def times(
    y: ArrayLike, r: ArrayLike, low: int, high: int, *, wide: bool = False
) -> NDArray[np.int16]:
    """Return the products of INT16 ``y`` [...] and 9-bit ``r`` [...], element by element, scaled.

    A product is divided by 2**4 if ``wide`` is true, otherwise by 2**12. The quotient is rounded to
    nearest, ties up, and clamped to ``low`` and ``high``.
    """
    product = np.asarray(y, np.int64) * np.asarray(r, np.int64)  # [...]
    return _round(product, PRODUCT_FRACTION, low, high, wide)


def _round(
    values: NDArray[np.int64], fraction: int, low: int, high: int, wide: bool
) -> NDArray[np.int16]:
    shift = fraction if wide else fraction + NARROW_FRACTION
    rounded = (values + (1 << (shift - 1))) >> shift
    return np.asarray(np.clip(rounded, low, high).astype(np.int16))


def rotary_places(n: int, period: int, lanes: int, cols: int) -> NDArray[np.int64]:
    """Return the index of each column's cosine or sine in a row of the rotary table, [n].

    An attention head has ``period`` columns. Columns are read in groups of ``lanes``; each tile of
    ``cols`` columns begins a new group. In a group from column b on, column c has the index ``b %
    period + (c - b)``.
    """
    column = np.arange(n, dtype=np.int64)  # [n]
    beat = column - column % cols % lanes  # [n], first column of the beat
    return np.asarray(beat % period + column - beat)


def rotary_table(
    positions: ArrayLike, head_dim: int, width: int, base: float = 10000.0
) -> NDArray[np.int16]:
    """Return the cosines and sines of rotary embedding, [positions, width], in Q1.15.

    Columns 2j and 2j + 1 have cosine and sine of ``position / base**(2 * j / head_dim)``; they
    repeat from column ``head_dim`` on. ``width`` must exceed all indices of :func:`rotary_places`.
    Raises :class:`InputError` if ``head_dim`` is odd or not positive.
    """
    if head_dim < 2 or head_dim % 2:
        raise InputError(f"Rotary head_dim must be even and positive, not {head_dim!r}")
    column = np.arange(width) % head_dim  # [width]
    speed = float(base) ** (-(column - column % 2) / head_dim)  # [width] radians per position
    angle = np.asarray(positions, np.float64)[:, None] * speed  # [positions, width]
    value = np.where(column % 2 == 0, np.cos(angle), np.sin(angle))
    return quantize_pairs(value)


def speeds_table(positions: ArrayLike, speeds: ArrayLike) -> NDArray[np.int16]:
    """Return cosines and sines of rotations at given speeds, [positions, 2 * pairs], in Q1.15.

    Pair j is rotated by the angle ``position * speeds[j]`` (radians). The cosine of this angle is
    in column 2j, its sine in column 2j + 1.
    """
    places = np.asarray(positions, np.float64)  # [positions]
    angle = places[:, None] * np.asarray(speeds, np.float64)  # [positions, pairs]
    value = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return quantize_pairs(value.reshape(len(angle), -1))


def quantize_pairs(pairs: ArrayLike) -> NDArray[np.int16]:
    """Return cosines and sines, rounded to Q1.15 (INT16 in units of ``2**-15``).

    Values above ``1 - 2**-15`` become ``1 - 2**-15``, and -1 becomes ``-(1 - 2**-15)``.
    """
    unit = 1 << ROTARY_FRACTION
    rounded = np.rint(np.asarray(pairs, np.float64) * unit)
    return np.clip(rounded, 1 - unit, unit - 1).astype(np.int16)
