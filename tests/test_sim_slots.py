"""Weight slots that two tiles share, against NumPy: equations (14), (21) and (22)."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim import pairs
from celosia.sim.interpreter import Interpreter
from celosia.sim.matmul import accumulate, part

CACHE = {"packed_cache": True, "block_exponents": True, "low_rows": 3}
CONFIG = PRESETS["story"].replace(rows=7, cols=4, lanes=4, weight_depth=16, **CACHE)
N = 9
"""Positions in a cache: three tiles, the last with one line."""


def machine(a: np.ndarray, b: np.ndarray) -> Interpreter:
    """Return a machine with rows a at 0 and rows b at 1024 in its scratchpad, and old slots."""
    golden = Interpreter(CONFIG)
    golden.slots[:] = np.random.default_rng(1).integers(-128, 128, golden.slots.shape)
    for addr, rows in ((0, a), (1024, b)):
        golden.sp[addr : addr + rows.size] = rows.astype(np.int8).view(np.uint8).ravel()
    return golden


def sums(golden: Interpreter, text: str, m: int, n: int) -> np.ndarray:
    """Run a program and return the sums of a product [m, n] from accumulator row 0 on."""
    golden.load_program(pack(assemble(f"{text}\nHALT")))
    golden.start()
    tiles = -(-n // CONFIG.array.cols)
    return golden.acc[: tiles * m].reshape(tiles, m, -1).swapaxes(0, 1).reshape(m, -1)[:, :n]


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("whole", [True, False])
def test_keys_of_two_heads_share_the_bytes_of_slots(k: int, whole: bool) -> None:
    """The slots keep upper halves, and lower ones of the first three elements of a key."""
    rng = np.random.default_rng(k)
    m, low, lower = 3, CONFIG.low_rows, "lower" if whole else ""
    queries = rng.integers(-128, 128, (m, k))
    heads = rng.integers(-128, 128, (2, N, k))
    golden = machine(queries, np.concatenate(list(heads), axis=1))
    # Four keys, then one, then the others, which begin inside of a tile.
    for first, count in ((0, 4), (4, 1), (5, 4)):
        tile, line = divmod(first, CONFIG.array.cols)
        sums(
            golden,
            f"PRELOAD k={k} n={count} b_addr={1024 + 2 * k * first} b_stride={2 * k} "
            f"slot={2 + tile} line={line} append b_transpose pair {lower}",
            m,
            N,
        )
    for head, second in enumerate(("", "second")):
        golden.acc[:] = 0
        product = sums(
            golden,
            f"MATMUL m={m} k={k} n={N} a_stride={k} acc_stride={m} slot=2 resident pair "
            f"{second} {lower}",
            m,
            N,
        )
        keys = heads[head].T
        exact = queries @ (keys // 16)
        if whole:
            exact = 16 * exact + queries[:, :low] @ (keys % 16 - 8)[:low]
        np.testing.assert_array_equal(product, exact)
        if k > low:
            model = pairs.score_sums(queries, heads[head], 4, low if whole else 0)
            np.testing.assert_array_equal(model, exact)


def test_scores_of_keys_that_are_kept_whole_are_exact() -> None:
    rng = np.random.default_rng(5)
    queries, keys = rng.integers(-128, 128, (4, 6)), rng.integers(-128, 128, (5, 6))
    for bits in (2, 4, 7):
        np.testing.assert_array_equal(pairs.score_sums(queries, keys, bits, 6), queries @ keys.T)
    x = np.arange(-128, 128)
    for bits in (1, 4, 6):
        step = 1 << 8 - bits
        np.testing.assert_array_equal(
            step * pairs.upper(x, bits) + pairs.lower(x, bits) + step // 2, x
        )


@pytest.mark.parametrize("block", [True, False])
def test_values_of_two_heads_share_the_bytes_of_slots(block: bool) -> None:
    """A position's values are upper halves, or mantissas with an exponent for both heads."""
    rng = np.random.default_rng(7)
    m, size = 2, 3
    weights = rng.integers(0, 128, (m, N))
    heads = rng.integers(-128, 128, (2, N, size)) >> np.arange(N)[:, None] % 5
    golden = machine(weights, np.concatenate(list(heads), axis=1))
    flag = "block" if block else ""
    place = f"n={size} b_stride={2 * size} append pair {flag}"
    sums(golden, f"PRELOAD k=6 b_addr=1024 slot=2 {place}", m, size)
    sums(golden, f"PRELOAD k=3 b_addr={1024 + 36} slot=2 line=6 {place}", m, size)
    for head, second in enumerate(("", "second")):
        golden.acc[:] = 0
        product = sums(
            golden,
            f"MATMUL m={m} k={N} n={size} a_stride={N} slot=2 resident pair {second} {flag}",
            m,
            size,
        )
        values = heads[head] // 16
        if block:
            fits = [
                next(e for e in range(1, 5) if np.all((both >> e >= -8) & (both >> e <= 7)))
                for both in heads.swapaxes(0, 1)
            ]
            step = 2 ** np.array(fits)[:, None]
            values = heads[head] // step * step + step // 2
            assert set(fits) == {1, 2, 3, 4}
        np.testing.assert_array_equal(product, weights @ values)


def test_tiles_add_to_accumulators_modulo_their_width() -> None:
    rng = np.random.default_rng(8)
    m, kt, nt, rows, cols, width = 3, 2, 2, 5, 4, 12
    acc, a = rng.integers(-2048, 2048, (11, cols)), rng.integers(-128, 128, (m, 8))
    tiles = rng.integers(-128, 128, (nt, kt, rows, cols))
    after = accumulate(acc, a, tiles, acc_addr=1, acc_stride=5, acc_width=width)
    expected = acc.copy()
    for column in range(nt):
        rows_of = slice(1 + 5 * column, 1 + 5 * column + m)
        expected[rows_of] += a @ tiles[column].reshape(kt * rows, cols)[:8]
    np.testing.assert_array_equal(after % 4096, expected % 4096)
    assert after.min() >= -2048
    assert after.max() <= 2047
    np.testing.assert_array_equal(after[[0, 4, 5, 9, 10]], acc[[0, 4, 5, 9, 10]])


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_parts_of_a_weight_add_up_to_it(width: int) -> None:
    weights, count = np.arange(-128, 128), 8 // width
    parts = [part(weights, place, place == count - 1, width) for place in range(count)]
    np.testing.assert_array_equal(sum(parts), weights)
    for place, each in enumerate(parts):
        assert np.all(each % (1 << width * place) == 0)
        assert place == count - 1 or each.min() == 0
