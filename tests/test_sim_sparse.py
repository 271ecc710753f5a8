"""The code of sparse matrices: without loss, in few bits, and its refusals."""

import re

import numpy as np
import pytest

from celosia.arch.sparse import code_bytes
from celosia.sim.sparse import decode, encode, multiply
from celosia.tb.benches.bench_sparse import random_weight


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost(seed) -> None:
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(16, 400)), int(rng.integers(1, 70))
    lanes, cols = int(rng.integers(1, 43)), int(rng.integers(1, 17))
    weight = random_weight(rng, k, n, float(rng.choice([0, 0.5, 0.9, 0.99, 1])))
    code = encode(weight, lanes, cols)
    decoded = decode(code, lanes, cols, k)
    np.testing.assert_array_equal(decoded.matrix(k, n), weight)
    assert decoded.value.size == np.count_nonzero(weight)
    a = rng.integers(-128, 128, (3, k))
    np.testing.assert_array_equal(multiply(a, decoded, n), a @ weight)


@pytest.mark.parametrize(("k", "n"), [(256, 64), (768, 288)])
@pytest.mark.parametrize(
    ("sparsity", "most"), [(0, 12.1), (0.5, 12.2), (0.8, 12.7), (0.9, 14.8), (0.95, 18.2)]
)
def test_bits_of_a_weight(k, n, sparsity, most) -> None:
    weight = random_weight(np.random.default_rng(1), k, n, sparsity)
    bits = 8 * encode(weight, 16, 16).size / np.count_nonzero(weight)
    assert most - 1 < bits <= most


def test_lanes_share_one_long_column() -> None:
    weight = np.zeros((160, 5), np.int64)
    weight[:, 2] = 7
    assert encode(weight, 16, 8).size == code_bytes(16, 10)


def test_a_code_has_no_names_for_large_matrices() -> None:
    for shape, cols in (((15, 3), 4), ((4097, 1), 4), ((16, 4097), 1)):
        message = (
            f"A sparse matrix must have from 16 to 4096 rows and at most {4096 * cols} columns, "
            f"not shape {shape}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            encode(np.ones(shape), 4, cols)
