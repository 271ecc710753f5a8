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
    """Return one part of each 8-bit weight in b: ``width`` bits from bit ``place * width`` on.

    ``place`` is the number of the part; part 0 has the lowest bits. The bits keep their positions
    in the weight, so a weight is the sum of its parts: equation (14) of ``docs/formats.md``. If
    ``last`` is true, the part is a signed number, otherwise an unsigned one. The caller must set
    ``last`` for the part with the highest bits, and only for this part.
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
    """Return a matrix's tiles [nt, kt, rows, cols] from the weight slots that begin at ``slot``.

    The matrix has ``nt`` tile columns of ``kt`` tiles. A weight slot is the array's storage for one
    tile of bytes. ``slots`` [depth, rows, cols] has a word for each row and column of each slot. A
    word has three fields, from the lowest bits on:

    - a byte with one or two weights.
    - ``scale_bits`` bits. In the words of a column of the slot, they form the scale of the column.
    - ``exponent_bits`` bits. In the words of a row of the slot, they form the exponent of the row.

    The options determine the weights of a byte:

    - None of the options: the byte is an 8-bit weight.
    - ``paired``: the byte has two 4-bit weights of the same matrix. The low half is a weight of a
      tile, and the high half a weight of the next tile of the tile column.
    - ``half``: the byte has two 4-bit weights, one for each of two matrices. If ``half`` is 0, the
      function returns the tiles of the matrix in the low halves; if 1, in the high halves.
    - ``half`` and ``block``: as ``half``, but the 4 bits are a mantissa. The function returns the
      8-bit number for the mantissa and the row's exponent (:func:`celosia.sim.blocks.operands`).

    If ``scaled`` is true, each weight is multiplied by the scale of its column. This option can be
    combined with ``paired``.
    """
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
    """Return words of weight slots [k, n], each with a weight and a part of the weight's scale.

    A weight slot is the array's storage for a tile of at most ``rows`` rows of weights. The input
    ``b`` has n columns, and groups of rows, one for each slot. The first row of a group has the
    scales of the columns, from 0 to 255. At most ``rows`` rows of weights follow. The result has
    only the rows for weights, k in all groups.

    A word is ``weight + 256 * bits``. ``bits`` has ``scale_bits`` bits of the scale; the words of a
    column together have the whole scale, lowest bits first. For example, ``scale_bits`` is 4, and a
    column has the scale ``0xC8`` and three weights. ``bits`` is 8 for the first weight, ``0xC`` for
    the second weight, and 0 for the third.
    """
    words = []
    for first in range(0, len(b), rows + 1):
        scales, lines = b[first] % 256, b[first + 1 : first + 1 + rows]  # [n], [rows, n]
        places = scale_bits * np.arange(len(lines))[:, None]
        words.append(lines + 256 * (scales >> places & (1 << scale_bits) - 1))
    return np.concatenate(words)


def pairs(b: Ints, rows: int) -> Ints:
    """Return 4-bit weights [k, n] packed in bytes, two weights of the same column in each byte.

    In each group of ``2 * rows`` rows, row ``i`` is stored in the low bits of bytes, and row ``i +
    rows`` in the high bits of the same bytes. The last group is padded with rows of zeros. Each
    group becomes ``rows`` rows of bytes.
    """
    k, n = b.shape
    tile_rows = -(-k // (2 * rows))
    padded = np.zeros((tile_rows * 2 * rows, n), np.int64)
    padded[:k] = b
    low, high = padded.reshape(tile_rows, 2, rows, n).transpose(1, 0, 2, 3)
    return wrap((high << 4) + (low & 15), 8).reshape(tile_rows * rows, n)


def place(slots: Ints, b: Ints, *, slot: int, transpose: bool) -> None:
    """Write the tiles of b [k, n] to weight slots [depth, rows, cols], from ``slot`` on.

    A weight slot stores one tile, which is padded with zeros to ``cols`` columns. The last tile of
    a tile column can have fewer than ``rows`` rows. ``transpose`` determines the remaining rows of
    its slot:

    - If ``transpose`` is true, they become 0. The circuit then writes whole columns of a slot.
    - If ``transpose`` is false, they do not change. The circuit then writes rows of a slot.

    ``transpose`` must be true if b was transposed after it was read from memory (flag
    ``b_transpose`` of the instruction PRELOAD). The function itself does not transpose b.
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
    """Append columns or rows to a matrix that is stored in consecutive weight slots.

    A weight slot stores one tile. ``slots`` [depth, rows, cols] is changed in place. The matrix
    begins in slot ``slot``. ``line`` is the index in the matrix, from 0, of the first new column or
    row.

    - If ``transpose`` is true, the columns of b [k, n] are appended: column j of b becomes column
      ``line + j`` of the matrix. Each column spans ceil(k / rows) consecutive slots.
    - If ``transpose`` is false, the rows of b [k, n] are appended: row j of b becomes row
      ``line + j`` of the matrix. n may be at most cols.

    The other elements of a new column or row are set to 0.

    ``lower`` [count, n] is optional, and requires ``transpose``. It has ``count`` further elements
    for each new column, which are stored from the end of the column backwards. For example,
    ``rows`` is 8, k is 5 and ``count`` is 2. In the slot, rows 0 to 4 have column j of b, row 5 is
    0, row 6 has ``lower[1, j]``, and row 7 has ``lower[0, j]``. ``k + count`` must be at most
    ``ceil(k / rows) * rows``. A cache of keys stores the upper bits of a key's elements by b, and
    the lower bits of its first ``count`` elements by ``lower``.
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
    """Return the accumulators ``acc`` [depth, cols] plus a matrix product, computed tile by tile.

    ``acc`` does not change. The product's left matrix is ``a`` [m, k]. Its right matrix is
    ``tiles`` [nt, kt, rows, cols]: ``nt`` tile columns of ``kt`` tiles, as :func:`cut` returns
    them. The caller has subtracted the zero points of both matrices.

    Row i of the product's tile column j is added to accumulator row ``acc_addr + j * acc_stride +
    i``. Sums wrap at ``acc_width`` bits.
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
