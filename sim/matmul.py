"""Golden model of matrix products, computed at once, or tile by tile as in the array."""

import numpy as np
from numpy.typing import NDArray

from celosia.sim import blocks

Ints = NDArray[np.int64]
WIDE_UNIT = 256
"""Unit of products of two INT16 operands."""
WIDE_LONGEST = ((1 << 31) - 1) // ((1 << 22) + (1 << 6))
"""Most products of two INT16 operands whose sum always fits 32 bits."""


def multiply(a: Ints, b: Ints, a_zero: int = 0, b_zero: int = 0) -> Ints:
    """Return the exact sums over k of (a[i, k] - a_zero) * (b[k, j] - b_zero), [m, n].

    a is [m, k] and b is [k, n]. No sum may reach 2**53.
    """
    left = a.astype(np.float64) - a_zero  # [m, k], exact
    right = b.astype(np.float64) - b_zero  # [k, n], exact
    return (left @ right).astype(np.int64)


def parts_of_wide(x: Ints) -> tuple[Ints, Ints]:
    """Return INT16 numbers as (high, low): ``x = 256 * high + low``, ``low`` from -128 to 127."""
    high = (x + WIDE_UNIT // 2) >> 8
    return high, x - WIDE_UNIT * high


def multiply_wide(a: Ints, b: Ints) -> Ints:
    """Return the matrix product [m, n] of INT16 a [m, k] and INT16 b [k, n], in units of 256.

    Products of the low bytes of two elements are omitted: equation (19) of ``docs/formats.md``.
    """
    (high, _), (b_high, b_low) = parts_of_wide(a), parts_of_wide(b)
    return multiply(a, b_high) + multiply(high, b_low)


def part(b: Ints, place: int, last: bool, width: int) -> Ints:
    """Return ``width`` bits of each 8-bit weight in ``b``, from bit ``place * width`` on.

    The bits stay at their positions, so that a weight is the sum of its parts: equation (14) of
    ``docs/formats.md``. ``last`` must be true for the highest bits, which are signed, and false for
    all other bits.
    """
    bits = b >> place * width & (1 << width) - 1
    sign = (b < 0) & last
    return np.asarray((bits - (sign << width)) << place * width)


def wrap(values: Ints, width: int) -> Ints:
    """Return values modulo 2**width as signed integers."""
    half = 1 << (width - 1)
    return (values + half) % (1 << width) - half


def cut(b: Ints, rows: int, cols: int) -> Ints:
    """Return a matrix b [k, n] cut into tiles [nt, kt, rows, cols], padded with zeros.

    ``nt`` is the number of tile columns, and ``kt`` the number of tiles in a tile column.
    """
    k, n = b.shape
    kt, nt = -(-k // rows), -(-n // cols)
    padded = np.zeros((kt * rows, nt * cols), np.int64)
    padded[:k, :n] = b
    return padded.reshape(kt, rows, nt, cols).transpose(2, 0, 1, 3)


def held(
    slots: Ints,
    slot: int,
    nt: int,
    kt: int,
    *,
    paired: bool = False,
    half: int | None = None,
    scaled: bool = False,
    scale_bits: int = 0,
    exponent_bits: int = 0,
    block: bool = False,
) -> Ints:
    """Return the weights of a matrix, as tiles in the form of :func:`cut`, from the tile memory.

    ``slots`` [depth, rows, cols] is the memory of the array. The matrix has ``nt`` columns of
    ``kt`` tiles; its first tile has the index ``slot``.

    - ``paired``: each byte has 4-bit weights of two successive tiles, the first in the low half.
    - ``half``: only the low (0) or the high half (1) of each byte is read.
    - ``block``: the 4-bit numbers are mantissas (:mod:`celosia.sim.blocks`).
    - ``scaled``: weights are multiplied by their column's scale.
    """
    # A word has a byte in its low bits, then ``scale_bits`` bits of its column's scale, then
    # ``exponent_bits`` bits of its row's exponent.
    _, rows, cols = slots.shape
    slots_each = -(-kt // 2) if paired else kt
    words = slots[slot : slot + nt * slots_each].reshape(nt, slots_each, 1, rows, cols)
    tiles = wrap(words, 8) if scale_bits or exponent_bits else words
    above = words - tiles
    parts = (above >> 8)[..., : -(-8 // scale_bits), :] % (1 << scale_bits) if scale_bits else words
    if paired:
        # [nt, taken, 2, rows, cols]
        tiles = wrap(tiles >> np.array([0, 4])[:, None, None], 4)
    if half is not None:
        tiles = wrap(tiles >> 4 * half, 4)
    if block:
        tiles = blocks.operands(tiles, blocks.stored_exponents(above, exponent_bits, scale_bits))
    if scaled:
        places = scale_bits * np.arange(parts.shape[-2])[:, None]
        tiles = tiles * (np.sum(parts << places, axis=-2, keepdims=True) % 256)
    return tiles.reshape(nt, -1, rows, cols)[:, :kt]


def words_with_scales(b: Ints, rows: int, scale_bits: int) -> Ints:
    """Return words [k, n] for the array's tiles, each with a weight and bits of its column's scale.

    For each tile, ``b`` has a row of scales (0 to 255), then at most ``rows`` rows of weights. A
    word is ``weight + 256 * bits``. In row i of a tile, ``bits`` are ``scale_bits`` bits of the
    scale, from bit ``i * scale_bits`` on.
    """
    words = []
    for first in range(0, len(b), rows + 1):
        scales, lines = b[first] % 256, b[first + 1 : first + 1 + rows]  # [n], [rows, n]
        places = scale_bits * np.arange(len(lines))[:, None]
        words.append(lines + 256 * (scales >> places & (1 << scale_bits) - 1))
    return np.concatenate(words)


def pairs(b: Ints, rows: int) -> Ints:
    """Return 4-bit weights [k, n] packed in bytes, two weights of the same column in each byte.

    Of each ``2 * rows`` rows, row ``i`` has the low halves and row ``i + rows`` the high halves of
    byte row ``i``. The last group is padded with zeros.
    """
    k, n = b.shape
    tile_rows = -(-k // (2 * rows))
    padded = np.zeros((tile_rows * 2 * rows, n), np.int64)
    padded[:k] = b
    low, high = padded.reshape(tile_rows, 2, rows, n).transpose(1, 0, 2, 3)
    return wrap((high << 4) + (low & 15), 8).reshape(tile_rows * rows, n)


def place(slots: Ints, b: Ints, *, slot: int, transpose: bool) -> None:
    """Write b [k, n] as tiles to the array's tile memory [depth, rows, cols], from tile ``slot``.

    The last tiles are padded to ``cols`` columns with zeros. Rows of these tiles beyond ``k``
    become 0 if ``transpose`` is true, otherwise they keep their values. ``transpose`` is true if b
    is stored transposed in the scratchpad.
    """
    _, rows, cols = slots.shape
    tiles = cut(b, rows, cols)  # [nt, kt, rows, cols]
    nt, kt = tiles.shape[:2]
    for column in range(nt):
        for row in range(kt):
            lines = rows if transpose else min(rows, b.shape[0] - row * rows)
            slots[slot + column * kt + row, :lines] = tiles[column, row, :lines]


def append(
    slots: Ints, b: Ints, *, slot: int, line: int, transpose: bool, lower: Ints | None = None
) -> None:
    """Append b [k, n] to a matrix in the array's tile memory [depth, rows, cols], in place.

    The matrix begins at tile ``slot``. If ``transpose`` is true, the columns of b are appended,
    otherwise its rows. The first appended row or column has the index ``line`` in the matrix.
    Elements beyond b become 0. ``lower`` [count, n], allowed for columns only, is stored from the
    ends of the columns backwards.
    """
    _, rows, cols = slots.shape
    if transpose:
        kt = -(-b.shape[0] // rows)
        for j in range(b.shape[1]):
            place, column = divmod(line + j, cols)
            padded = np.zeros(kt * rows, np.int64)
            padded[: b.shape[0]] = b[:, j]
            if lower is not None:
                padded[kt * rows - len(lower) :] = lower[::-1, j]
            first = slot + place * kt
            slots[first : first + kt, :, column] = padded.reshape(kt, rows)
        return
    for j in range(b.shape[0]):
        place, row = divmod(line + j, rows)
        slots[slot + place, row] = 0
        slots[slot + place, row, : b.shape[1]] = b[j]


def accumulate(
    acc: Ints,
    a: Ints,
    tiles: Ints,
    *,
    acc_addr: int = 0,
    acc_stride: int = 0,
    acc_width: int = 32,
) -> Ints:
    """Return accumulator rows ``acc`` [depth, cols] with a matrix product added, tile by tile.

    The product is ``a`` [m, k] times ``tiles`` [nt, kt, rows, cols] (:func:`cut`). Row i of tile
    column j is added to accumulator row ``acc_addr + j * acc_stride + i``. Sums wrap at
    ``acc_width`` bits.
    """
    acc = acc.copy()
    m, k = a.shape
    nt, kt, rows, _ = tiles.shape
    padded = np.zeros((m, kt * rows), np.int64)
    padded[:, :k] = a
    for column in range(nt):
        place = slice(acc_addr + column * acc_stride, acc_addr + column * acc_stride + m)
        for row in range(kt):
            part = padded[:, row * rows : (row + 1) * rows]
            acc[place] = wrap(acc[place] + multiply(part, tiles[column, row]), acc_width)
    return acc
