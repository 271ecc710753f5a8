"""Values that share an exponent with a few others, against equation (22) by hand."""

import numpy as np
import pytest

from celosia.sim.blocks import (
    exponents,
    mantissas,
    operands,
    pack_mantissas,
    rounded,
    stored_exponents,
)


@pytest.mark.parametrize(
    ("values", "exponent", "stands_for"),
    [
        ((0, -1), 1, (1, -1)),
        ((15, -16), 1, (15, -15)),
        ((16, 0), 2, (18, 2)),
        ((-17, 31), 2, (-18, 30)),
        ((32, 0), 3, (36, 4)),
        ((63, -64), 3, (60, -60)),
        ((64, 0), 4, (72, 8)),
        ((-128, 127), 4, (-120, 120)),
    ],
)
def test_a_block_has_the_least_exponent_that_holds_it(values, exponent, stands_for) -> None:
    block = np.array([values], np.int64)
    assert exponents(block).tolist() == [exponent]
    assert operands(mantissas(block, exponents(block)), exponents(block)).tolist() == [
        list(stands_for)
    ]
    assert rounded(np.tile(block, (1, 2)), 2).tolist() == [[*stands_for, *stands_for]]


def test_blocks_of_a_row_have_exponents_of_their_own() -> None:
    assert rounded(np.array([[15, 0, 64, 0], [0, 16, 0, 1]]), 2).tolist() == [
        [15, 1, 72, 8],
        [2, 18, 1, 1],
    ]


@pytest.mark.parametrize(("above", "scale_bits"), [(1, 0), (2, 0), (1, 16), (2, 16)])
def test_a_slot_gives_back_two_rows_and_their_exponents(above: int, scale_bits: int) -> None:
    rng = np.random.default_rng(1)
    size, cols = 5, 7
    limits = np.array([16, 32, 64, 128])[rng.integers(4, size=(60, 1))]
    first, second = (rng.integers(-limits, limits, (60, size)) for _ in range(2))
    exponent = exponents(np.concatenate([first, second], axis=1))
    slot = pack_mantissas(first, second, cols, above, scale_bits)
    scale = rng.integers(1 << scale_bits, size=slot.shape) << 8 if scale_bits else 0
    assert stored_exponents(slot + scale, above, scale_bits).tolist() == exponent.tolist()
    assert set(exponent.tolist()) == {1, 2, 3, 4}
    low = slot & 15
    assert np.where(low > 7, low - 16, low)[:, :size].tolist() == (
        mantissas(first, exponent).tolist()
    )
    byte = slot + 128 & 255
    assert ((byte - 128) >> 4)[:, :size].tolist() == mantissas(second, exponent).tolist()
    assert byte[:, size:].tolist() == np.full((60, cols - size), 128).tolist()
