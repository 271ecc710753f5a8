"""Golden model of the weight formats: equations (11) and (12) of ``docs/formats.md``."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import DIGITS, OPERAND_BITS, WeightFormat

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_PLACES = 3 ** np.arange(DIGITS - 1, -1, -1)  # [digits]


def pack(codes: Ints, form: WeightFormat, group: int = 0, scales: Ints | None = None) -> Bytes:
    """Return the codes [k, n] of a weight matrix, packed in rows of bytes [rows, n].

    A code is an index in ``form.values``. Byte j of each row has codes of column j, the first code
    in the highest bits: equation (11) of ``docs/formats.md``. With ``group``, a row of ``scales``
    [groups, n], 0 to 255, precedes each ``group`` rows of codes.
    """
    k, n = codes.shape
    rows: list[Bytes] = []
    for index, first in enumerate(range(0, k, group or k)):
        if scales is not None:
            rows.append(scales[index].astype(np.uint8)[None])
        part = codes[first : first + (group or k)]
        if form.digits:
            part = np.pad(part, ((0, -len(part) % DIGITS), (0, 0)))
            digits = part.reshape(-1, DIGITS, n)  # [bytes, digits, n]
            number = np.einsum("d,bdn->bn", _PLACES, digits)
            rows.append((-(-number * 256 // 3**DIGITS)).astype(np.uint8))
        else:
            bits = part[:, None] >> np.arange(form.width - 1, -1, -1)[:, None] & 1  # [k, width, n]
            rows.append(np.packbits(bits.reshape(-1, n).astype(np.uint8), axis=0))
    return np.concatenate(rows)


def unpack(stored: Bytes, k: int, form: WeightFormat, group: int = 0) -> Ints:
    """Return the weights [k, n] that are stored in rows of bytes, as signed 8-bit numbers.

    ``stored`` [rows, n] has the format of :func:`pack`. A weight is the value of its code in
    ``form.values``. With ``group``, each value is multiplied by the scale of its group of ``group``
    values (:func:`scaled`).
    """
    n = stored.shape[1]
    operands = np.zeros((k, n), np.int64)
    row = 0
    for first in range(0, k, group or k):
        count = min(group or k, k - first)
        scales = stored[row].astype(np.int64) if group else None
        row += bool(group)
        size = form.stored_rows(count, 0)
        values = np.array(form.values)[_codes(stored[row : row + size], count, form)]
        operands[first : first + count] = values if scales is None else scaled(values, scales, form)
        row += size
    return operands


def scaled(values: Ints, scales: Ints, form: WeightFormat) -> Ints:
    """Return decoded weights [k, n] times the scales [n] of their columns, as signed 8-bit numbers.

    The product is divided by ``2**form.fraction``, rounded to nearest, ties up, and wrapped modulo
    ``2**8``: equation (12) of ``docs/formats.md``.
    """
    half = 1 << form.fraction >> 1
    product = (values * scales + half) >> form.fraction
    bound = 1 << (OPERAND_BITS - 1)
    return (product + bound) % (2 * bound) - bound


def _codes(part: Bytes, count: int, form: WeightFormat) -> Ints:
    """Return the codes of one group's bytes, [count, n]: equation (11)."""
    if form.digits:
        digit_rows, rest = [], part.astype(np.int64)
        for _ in range(DIGITS):
            digit_rows.append(3 * rest >> 8)
            rest = 3 * rest & 255
        digits = np.stack(digit_rows, axis=1).reshape(-1, part.shape[1])
        return digits[:count]
    bits = np.unpackbits(part, axis=0)[: count * form.width].astype(np.int64)
    places = 1 << np.arange(form.width - 1, -1, -1)
    return np.asarray(np.einsum("w,kwn->kn", places, bits.reshape(count, form.width, -1)))
