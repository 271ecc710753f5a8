"""Errors of number formats against float64: weights, keys and values, 16-bit activations."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.formats import FORMATS, OPERAND_BITS, PLANES, WeightFormat
from celosia.generators.quantize.nested import planes
from celosia.sim import blocks, pairs
from celosia.sim.formats import pack, unpack
from celosia.sim.matmul import (
    WIDE_LONGEST,
    WIDE_UNIT,
    held,
    multiply,
    multiply_wide,
    parts_of_wide,
)
from celosia.sim.requantize import quantize_multiplier, requantize

ROWS_PER_BATCH = 500
"""Rows measured at once, all of one length (rows)."""
ELEMENTS = 60
"""Elements of a column in the measurements."""
BLOCK = 16
"""Columns of a token's values that share an exponent."""
LARGEST_RANK = 8
"""Largest measured rank of a correction."""
_HALF = 1 << (OPERAND_BITS - 1)
_WIDE_HALF = 1 << 15

Errors = Iterator[tuple[int, float]]
"""Batches: the number of cases, and the largest error among them."""
Measure = Callable[[int, np.random.Generator], Errors]
"""Takes the number of rows and a random generator."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def format_measures() -> Iterator[tuple[str, float, Measure]]:
    """Yield ``(name, bound, measure)`` for each number format whose error is measured.

    ``measure(rows, random)`` draws random rows in batches. For each batch, ``measure`` yields the
    number of rows and the largest error of these rows, which should be at most ``bound``. The unit
    of errors depends on the format.
    """
    for name, form in FORMATS.items():
        gap = float(np.diff(np.sort(form.values)).max())
        yield f"weights_{name}", gap / 2, partial(_weight_errors, form)
    for bits in sorted(PLANES, reverse=True):
        # Rounding to INT8, plus half of the range that the missing bits leave open.
        bound = 0.5 + (1 << (OPERAND_BITS - bits) >> 1)
        yield f"weights_nested_{bits}", bound, partial(_nested_errors, bits)
    yield "kv4_pairs", 8.0, partial(_pair_errors, False)
    yield "kv4_whole", 0.5, partial(_pair_errors, True)
    yield "values_block", 0.5, _block_errors
    # Errors of sums are divided by the sum of magnitudes in the column of the second matrix.
    yield "low_rank", 0.51, _low_rank_errors
    yield "activations_int16", 0.5, _activation_errors
    yield "products_int16", WIDE_UNIT / 4, _product_errors


def batches(rows: int) -> Iterator[int]:
    """Split ``rows`` rows into batches of at most :data:`ROWS_PER_BATCH` rows.

    Yields the number of rows of each batch.
    """
    for start in range(0, rows, ROWS_PER_BATCH):
        yield min(ROWS_PER_BATCH, rows - start)


def _worst(rounded: ArrayLike, exact: Floats) -> float:
    return float(np.abs(np.asarray(rounded) - exact).max())


def _weight_errors(form: WeightFormat, rows: int, random: np.random.Generator) -> Errors:
    order = np.argsort(form.values)
    values = np.array(form.values)[order]
    for count in batches(rows):
        exact = random.uniform(values[0], values[-1], (ELEMENTS, count))
        codes = order[np.searchsorted((values[1:] + values[:-1]) / 2, exact)]
        yield count, _worst(unpack(pack(codes, form), ELEMENTS, form), exact)


def _nested_errors(bits: int, rows: int, random: np.random.Generator) -> Errors:
    """The planes down to ``bits``, packed and unpacked: equation (20)."""
    for count in batches(rows):
        exact = random.uniform(-_HALF, _HALF - 1, (ELEMENTS, count))
        sums = np.zeros((ELEMENTS, count), np.int64)
        for plane, last in zip(planes(_rounded(exact)), PLANES, strict=True):
            if last <= bits:
                sums += unpack(pack(plane.codes, plane.form), ELEMENTS, plane.form)
        yield count, _worst(sums, exact)


def _rounded(exact: Floats) -> Ints:
    return np.rint(exact).astype(np.int64)


def _half(byte: Ints, half: int) -> Ints:
    """Return the operands of a product from one half of a slot's bytes [rows, columns]."""
    return np.asarray(held(byte[None], 0, 1, 1, half=half)[0, 0])


def _pair_errors(whole: bool, rows: int, random: np.random.Generator) -> Errors:
    """Keys or values of two heads in a slot's bytes: equation (21).

    The dropped part is 7.5 on average, which biases restore; ``whole`` columns drop no bits.
    """
    for count in batches(rows):
        exact = random.uniform(-_HALF, _HALF - 1, (2, ELEMENTS, count))
        x = _rounded(exact)
        upper, worst = pairs.both(*x), 0.0
        for half in range(2):
            middle = _half(pairs.both_lower(*x), half) + 8 if whole else 7.5
            worst = max(worst, _worst(16 * _half(upper, half) + middle, exact[half]))
        yield count, worst


def _block_errors(rows: int, random: np.random.Generator) -> Errors:
    """Values of two heads in a slot's rows, with shared exponents: equation (22)."""
    for count in batches(rows):
        spread = 2.0 ** random.uniform(0, 9, (count, 1))
        drawn = random.uniform(-1, 1, (2, count, BLOCK // 2)) * spread
        exact = np.clip(drawn, -_HALF, _HALF - 1)
        x = _rounded(exact)
        slot = blocks.pack_mantissas(x[0], x[1], BLOCK // 2, 1)[None]  # [1, rows, columns]
        step = 2.0 ** blocks.exponents(np.concatenate(x, axis=1))[:, None]
        worst = 0.0
        for half in range(2):
            decoded = held(slot, 0, 1, 1, half=half, exponent_bits=1, block=True)[0, 0]
            # On average half a step too high, which biases restore.
            worst = max(worst, _worst((decoded - 0.5) / step, exact[half] / step))
        yield count, worst


def _low_rank_errors(rows: int, random: np.random.Generator) -> Errors:
    """Sums of a product of INT4 weights and its correction: equation (18)."""
    for count in batches(rows):
        k, rank = int(random.integers(1, 256)), int(random.integers(1, LARGEST_RANK + 1))
        x = random.integers(-_HALF, _HALF, (count, k))
        weight = random.integers(-8, 8, (k, ELEMENTS))
        first = random.integers(1 - _HALF, _HALF, (k, rank))
        second = random.integers(1 - _HALF, _HALF, (rank, ELEMENTS))
        scale = (_HALF - 1) / max(float(np.abs(multiply(x, first)).max()), 2.0 * _HALF)
        thin = requantize(multiply(x, first), 0, *quantize_multiplier(scale), 0, -_HALF, _HALF - 1)
        sums = multiply(x, weight) + multiply(thin.astype(np.int64), second)
        floats = x.astype(np.float64)
        exact = floats @ weight + (floats @ first * scale) @ second
        share = np.maximum(np.abs(second).sum(axis=0), 1)
        yield count, _worst(sums / share, exact / share)


def _activation_errors(rows: int, random: np.random.Generator) -> Errors:
    """Sums of INT16 activations times INT8 weights, byte by byte: equation (19)."""
    for index, count in enumerate(batches(rows)):
        k = int(random.integers(1, 64)) if index % 4 else 1
        exact = random.uniform(-_WIDE_HALF, _WIDE_HALF - 1, (count, k))
        weight = random.integers(1, _HALF, (k, ELEMENTS)) * random.choice([-1, 1], (k, ELEMENTS))
        high, low = parts_of_wide(_rounded(exact))
        sums = multiply(low, weight) + 256 * multiply(high, weight)
        share = np.abs(weight).sum(axis=0)
        yield count, _worst(sums / share, (exact @ weight) / share)


def _product_errors(rows: int, random: np.random.Generator) -> Errors:
    """Sums of INT16 times INT16 in units of 256: equation (19).

    The product of both low bytes is left out; it is largest if both are -128.
    """
    for index, count in enumerate(batches(rows)):
        k = int(random.integers(1, WIDE_LONGEST + 1)) if index % 4 else 1
        a = random.integers(-_WIDE_HALF, _WIDE_HALF, (count, k))
        b = random.integers(-_WIDE_HALF, _WIDE_HALF, (k, ELEMENTS))
        a[0], b[:, 0] = 128 - _WIDE_HALF, _WIDE_HALF - 128
        exact = a.astype(np.float64) @ b / WIDE_UNIT
        yield count, _worst(multiply_wide(a, b), exact) / k
