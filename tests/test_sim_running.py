"""Golden running rows against float64: chunks of any length, extreme scores, masked rows."""

import numpy as np
import pytest

from sim.requantize import quantize_multiplier, requantize, saturate16
from sim.running import RunningRows
from sim.softmax import softmax

ROWS = 6
DIM = 4
STEP = 256
"""Steps of the INT16 output to one of the INT8 values."""


def exact_softmax(q, keep):
    """Return float64 probabilities [m, n]; 0 in a row where no column takes part."""
    largest = np.where(keep, q, -32768).max(axis=1, keepdims=True)
    weights = np.where(keep, 2.0 ** ((q - largest) / 256), 0)
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 2.0**-99)


def attend(q, keep, values, chunk):
    """Return probabilities [m, n] and outputs [m, DIM] of attention, chunk after chunk.

    As the instructions do it: INT8 weights with the scale 1/255 and the zero point -128, sums of
    products, INT16 outputs in units of ``1 / STEP``.
    """
    rows = RunningRows(ROWS + 1)
    weights, maxima = [], []
    output = np.zeros((len(q), values.shape[1]), np.int64)
    for first in range(0, q.shape[1], chunk):
        columns = slice(first, first + chunk)
        w = rows.weights(1, q[:, columns], keep[:, columns], first=first == 0)
        w = requantize(w, 0, *quantize_multiplier(255 / 2**24), -128, -128, 127)
        w = np.where(keep[:, columns], w.astype(np.int64) + 128, 0)
        multiplier, shift = rows.scale(1, len(q), *quantize_multiplier(STEP / 255))
        products = w @ values[columns]
        y = requantize(products, 0, multiplier[:, None], shift[:, None], 0, -32768, 32767)
        output = saturate16(y + rows.kept(1, output)).astype(np.int64)
        weights.append(w)
        maxima.append(np.repeat(rows.maximum[1:, None], w.shape[1], axis=1))
    total = np.maximum(rows.total[1:, None], 1) / 2**28
    scale = 2.0 ** ((np.concatenate(maxima, 1) - rows.maximum[1:, None]) / 256)
    return np.concatenate(weights, 1) / 255 * scale / total, output


def scores(kind, n, rng):
    """Return scores [ROWS, n] of a kind."""
    if kind == "normal":
        spread = 2 ** rng.uniform(2, 12, (ROWS, 1))
        return np.rint(rng.normal(0, spread, (ROWS, n))).clip(-32768, 32767).astype(np.int64)
    if kind == "any":
        return rng.integers(-32768, 32768, (ROWS, n))
    if kind == "rising":
        return np.sort(rng.integers(-6000, 6000, (ROWS, n)), axis=1)
    q = np.full((ROWS, n), 77 if kind == "equal" else -32768)
    if kind == "one huge":
        q[:, rng.integers(n)] = 32767
    return q


@pytest.mark.parametrize("kind", ["normal", "any", "rising", "equal", "one huge", "lowest"])
def test_chunks_of_any_length_are_one_softmax(kind):
    rng = np.random.default_rng(1)
    for n in (1, 2, 17, 64, 511, 2048):
        q = scores(kind, n, rng)
        values = rng.integers(-128, 128, (n, DIM))
        for share in (0.1, 1.0):
            keep = rng.random((ROWS, n)) < share
            keep[0] = False
            for chunk in sorted({-(-n // 40), min(n, 64), int(rng.integers(n)) + 1, n}):
                p, output = attend(q, keep, values, chunk)
                assert np.abs(p - exact_softmax(q, keep)).max() <= 0.51 / 256
                chunks = -(-n // chunk)
                assert np.abs(output - STEP * (p @ values)).max() <= 1 + chunks / 2
                assert not output[0].any()


def test_one_chunk_has_the_weights_of_the_softmax():
    rng = np.random.default_rng(2)
    q = rng.integers(-3000, 3000, (ROWS, 50))
    rows = RunningRows(ROWS)
    weights = rows.weights(0, q, first=True)
    assert (weights.max(axis=1) == 1 << 24).all()
    p = weights / rows.total[:, None] * 2**28
    assert np.abs(p - softmax(q)).max() <= 2.0**-15 * 2**24
    assert not rows.keep.any()


def test_a_chunk_without_columns_changes_nothing():
    rng = np.random.default_rng(3)
    rows = RunningRows(ROWS)
    rows.weights(0, rng.integers(-3000, 3000, (ROWS, 9)), first=True)
    names = ("maximum", "total", "inverse", "halvings")
    before = [getattr(rows, name).copy() for name in names]
    q = rng.integers(-32768, 32768, (ROWS, 9))
    assert not rows.weights(0, q, np.zeros((ROWS, 9), np.bool_), first=False).any()
    for name, value in zip(names, before, strict=True):
        np.testing.assert_array_equal(getattr(rows, name), value)
    residual = rng.integers(-32768, 32768, (ROWS, 9))
    np.testing.assert_array_equal(rows.kept(0, residual), residual)


def test_rows_that_never_summed_anything_divide_to_zero():
    rows = RunningRows(2)
    assert [scale.tolist() for scale in rows.scale(0, 2, 1 << 30, 5)] == [[0, 0], [0, 0]]
    assert rows.kept(0, np.array([[-32768], [32767]])).tolist() == [[0], [0]]


def test_a_factor_too_small_for_a_shift_is_zero():
    rows = RunningRows(1)
    rows.weights(0, np.zeros((1, 4), np.int64), first=True)
    assert rows.halvings.tolist() == [2]
    assert [int(scale[0]) for scale in rows.scale(0, 1, 1 << 30, -30)] == [1 << 29, -31]
    assert [int(scale[0]) for scale in rows.scale(0, 1, 1 << 30, -31)] == [0, 0]


def test_sums_that_do_not_fit_are_refused():
    rows = RunningRows(3)
    rows.weights(1, np.zeros((2, 2), np.int64), first=True)
    rows.total[2] = (1 << 48) - (1 << 28)
    message = "^Running row 2 sums weights to 281474976710656, which 48 bits do not hold$"
    with pytest.raises(ValueError, match=message):
        rows.weights(1, np.zeros((2, 1), np.int64), first=False)
