"""The compressed form of sparse weights, its product, and the schedule."""

import re

import numpy as np
import pytest

from sim.sparse import compress, count_cycles, decompress, multiply


def random_matrix(generator, n, k, sparsity):
    w = generator.integers(-128, 128, (n, k))
    return np.where(generator.random((n, k)) < sparsity, 0, w)


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize(
    ("n", "k", "window", "values"),
    [(8, 64, 16, 4), (7, 61, 16, 3), (1, 1, 1, 1), (5, 100, 7, 7), (3, 17, 64, 2), (4, 9, 1, 1)],
)
def test_beats_hold_the_matrix(n, k, window, values, sparsity):
    generator = np.random.default_rng(n * k)
    w = random_matrix(generator, n, k, sparsity)
    x = generator.integers(-128, 128, k)
    beats = compress(w, window=window, values=values)
    assert np.array_equal(decompress(beats, k), w)
    assert np.array_equal(multiply(beats, x), w @ x)
    # What the circuit relies on.
    assert np.array_equal(beats.bitmap.sum(axis=1), beats.count)
    assert np.array_equal((beats.values != 0).sum(axis=1), beats.count)
    assert beats.bitmap.shape[1] == window
    assert beats.values.shape[1] == values
    assert beats.row_last.sum() == n
    assert beats.matrix_last.tolist() == [0] * (beats.count.size - 1) + [1]
    # No beat without weights but that of a row of zeros; no beat starts at a zero.
    assert (beats.count == 0).sum() == (~w.any(axis=1)).sum()
    assert beats.bitmap[beats.count > 0, 0].all()


def test_beats_are_as_few_as_the_format_allows():
    w = np.zeros((3, 300), dtype=np.int64)
    w[0, [0, 15, 16, 299]] = [1, -2, 3, -4]
    w[2] = 5
    beats = compress(w, window=16, values=8)
    assert beats.base.tolist() == [0, 16, 299, 0, *range(0, 300, 8)]
    assert beats.count.tolist() == [2, 1, 1, 0, *[8] * 37, 4]
    assert beats.row_last.tolist() == [0, 0, 1, 1, *[0] * 37, 1]
    assert np.flatnonzero(beats.bitmap[0]).tolist() == [0, 15]
    assert beats.values[0].tolist() == [1, -2, 0, 0, 0, 0, 0, 0]


def test_extreme_sums():
    beats = compress(np.full((2, 2048), -128), window=64, values=8)
    assert multiply(beats, np.full(2048, -128)).tolist() == [2048 << 14] * 2


@pytest.mark.parametrize(
    ("w", "sizes", "message"),
    [
        ([1, 2], (4, 4), "A weight matrix must have rows and columns, not shape (2,)"),
        (np.zeros((0, 3)), (4, 4), "A weight matrix must have rows and columns, not shape (0, 3)"),
        ([[1]], (0, 4), "Beat window must be at least 1, not 0"),
        ([[1]], (4, -1), "Beat values must be at least 1, not -1"),
    ],
)
def test_bad_arguments(w, sizes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compress(w, window=sizes[0], values=sizes[1])


@pytest.mark.parametrize(
    ("counts", "lanes", "cycles"),
    [
        ([0], 1, 3),  # taken, merged, given
        ([1], 1, 7),  # taken, its product, four cycles to the merger, given
        ([8], 1, 14),
        ([0] * 10, 4, 12),  # a row a cycle
        ([8, 8], 1, 22),
        ([8, 8], 2, 15),  # the second lane starts a cycle later
        ([8] * 400, 4, 809),
        ([1] * 100, 4, 106),  # a beat a cycle
        ([8, 1, 1, 1, 1, 1, 1, 1, 1], 2, 22),  # the short ones are merged after the long one
    ],
)
def test_schedule(counts, lanes, cycles):
    assert count_cycles(counts, lanes) == cycles
