"""Factors of rows, equation (23), against float64: norms, softmax, and DRAIN on the machine."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter
from celosia.sim.norm import norm_parameters, row_factors
from celosia.sim.requantize import times_factor
from celosia.sim.softmax import row_weights

CONFIG = PRESETS["small"].replace(multiplier_width=16, row_factors=8, cols=4, lanes=2)
RELATIVE = 2.0**-15
"""Bound of the relative error of a reciprocal of 17 bits."""


def test_the_factor_of_a_norm_is_near_float64() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 3, 64, 1000):
        x = rng.integers(-32768, 32768, (20, n)) >> rng.integers(0, 15, (20, 1))
        r = rng.integers(-32768, 32768, (20, n))
        for eps in (1, 12345, 1 << 40):
            for added in (None, r):
                mantissa, right, s = row_factors(x, added, eps=eps)
                rows = x if added is None else np.clip(x + r, -32768, 32767)
                np.testing.assert_array_equal(s, rows)
                assert s.dtype == np.int16
                assert mantissa.shape == right.shape == (20, 1)
                exact = 1 / np.sqrt(n * (rows.astype(float) ** 2).sum(1, keepdims=True) + eps)
                found = mantissa * 2.0 ** (-16 - right)
                assert np.abs(found / exact - 1).max() <= RELATIVE


def test_a_row_without_variance_has_the_factor_0() -> None:
    mantissa, right, _ = row_factors([[0, 0], [0, 1]], eps=0)
    assert mantissa[0, 0] == 0
    assert mantissa[1, 0] > 0
    assert right.min() >= 0


@pytest.mark.parametrize("shape", [(9,), (4, 9), (2, 3, 9)])
def test_weights_times_their_factor_are_probabilities(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    q, mask = rng.integers(-2000, 2000, shape), rng.random(shape) < 0.7
    mask[..., 3] = True
    weights, mantissa, right = row_weights(q, mask)
    assert mantissa.shape == right.shape == (*shape[:-1], 1)
    assert np.all(weights.max(axis=-1) == 1 << 24)
    assert not weights[~mask].any()
    exact = np.where(mask, 2.0 ** (q / 256), 0)
    exact /= exact.sum(axis=-1, keepdims=True)
    assert np.abs(weights * 2.0**-24 * mantissa / 2.0**right - exact).max() <= 2 * RELATIVE
    hidden = row_weights(q, np.zeros(shape, bool))
    assert not any(part.any() for part in hidden)


def test_a_requantization_takes_a_factor() -> None:
    rng = np.random.default_rng(3)
    multiplier = rng.choice([-1, 1], 200) * rng.integers(1 << 14, 1 << 15, 200) << 16
    shift, right = rng.integers(-10, 10, 200), rng.integers(0, 20, 200)
    mantissa = rng.integers(1 << 16, 1 << 17, 200)
    taken, shifts = times_factor(multiplier, shift, mantissa, right)
    exact = multiplier * 2.0 ** (shift - 31) * mantissa / 2.0**right
    error = taken * 2.0 ** (shifts - 31) / exact - 1
    assert np.abs(error).max() < 2.0**-14
    assert np.all(taken % (1 << 16) == 0)
    assert np.all((np.abs(taken) >= (1 << 30) - (1 << 16)) & (np.abs(taken) <= 1 << 31))


def test_a_shift_of_a_factor_keeps_its_range() -> None:
    one = 1 << 30, 1 << 16
    assert times_factor(one[0], 30, one[1], 0)[1] == 30
    assert times_factor(one[0], -31, one[1], 31)[1] == -31
    for empty in ((0, one[1]), (one[0], 0)):
        assert times_factor(empty[0], 0, empty[1], 3)[0] == 0


def machine(x: np.ndarray, wide: bool) -> Interpreter:
    """Return a machine with rows x at 0 in its scratchpad, and multipliers of about one."""
    golden = Interpreter(CONFIG)
    data = x.astype("<i2" if wide else np.int8).view(np.uint8).ravel()
    golden.sp[: data.size] = data
    golden.multiplier[:], golden.shift[:] = 1 << 30, 1
    return golden


def run(golden: Interpreter, text: str) -> None:
    golden.load_program(pack(assemble(f"{text}\nHALT")))
    golden.start()


@pytest.mark.parametrize("first", [0, 3])
def test_the_machine_divides_by_the_root_after_a_product(first: int) -> None:
    rng = np.random.default_rng(4)
    m, n = 5, 6
    x = rng.integers(-3000, 3000, (m, n))
    golden = machine(x, wide=True)
    golden.shift[:] = -7
    run(
        golden,
        f"NORM m={m} n={n} i_stride={2 * n} o_addr=1024 o_stride={n} eps_low=9 params={first << 16}"
        " per_tensor rms factors",
    )
    rows = golden.sp[1024 : 1024 + m * n].view(np.int8).reshape(m, n)
    assert np.abs(rows - x / 256).max() <= 0.5
    mantissa, right, _ = row_factors(x, eps=9)
    kept = slice(first, first + m)
    np.testing.assert_array_equal(golden.factors[:, kept], [mantissa[:, 0], right[:, 0]])
    # Sums of a product of the rows, times the root of their variance, times 2**14.
    sums = rng.integers(-20000, 20000, (m, 4))
    golden.acc[:m] = sums
    golden.shift[:] = -1
    text = f"m={m} n=4 o_addr=2048 o_stride=8 params={first << 16} per_tensor wide_out factors"
    run(golden, f"DRAIN {text}")
    out = golden.sp[2048 : 2048 + 8 * m].view("<i2").reshape(m, 4)
    exact = sums * 2.0**14 / np.sqrt(n * (x.astype(float) ** 2).sum(1, keepdims=True) + 9)
    assert np.abs(out - exact).max() <= 0.51 + 2.0**-13 * np.abs(exact).max()
    assert np.abs(exact).max() > 1000


def test_the_machine_divides_by_the_weights_of_a_softmax_after_a_product() -> None:
    """A row of factors counts for a row, or with by_tile for a tile column of one row."""
    rng = np.random.default_rng(6)
    m, n = 3, 7
    q = rng.integers(-900, 900, (m, n))
    golden = machine(q, wide=True)
    golden.shift[:] = -17
    run(
        golden,
        f"SOFTMAX m={m} n={n} i_stride={2 * n} o_addr=1024 o_stride={n} limit={n} "
        "params=131072 per_tensor factors",
    )
    _, mantissa, right = row_weights(q, np.ones(q.shape, bool))
    np.testing.assert_array_equal(golden.factors[:, 2 : 2 + m], [mantissa[:, 0], right[:, 0]])
    total = (2.0 ** ((q - q.max(1, keepdims=True)) / 256)).sum(1)  # [m]
    sums = rng.integers(-(1 << 20), 1 << 20, (m, 4))
    for by_tile in (False, True):
        golden.acc[:m] = sums
        golden.shift[:] = -5
        shape = f"m=1 n={4 * m} acc_stride=1 by_tile" if by_tile else f"m={m} n=4"
        run(
            golden,
            f"DRAIN {shape} o_addr=2048 o_stride={24 if by_tile else 8} params=131072 "
            "per_tensor wide_out factors",
        )
        out = golden.sp[2048 : 2048 + 8 * m].view("<i2").reshape(m, 4)
        exact = sums * 2.0**-6 / total[:, None]
        assert np.abs(out - exact).max() <= 0.51 + 2.0**-13 * np.abs(exact).max()
        assert np.abs(exact).max() > 1000


def test_a_gain_may_be_nearly_two_to_the_16_steps() -> None:
    bias, multiplier, shift = norm_parameters([65535.0, -40000.0], [0.0, 1.0], 1.0)
    assert (multiplier * 2.0 ** (shift - 31.0) * 65536).tolist() == [65535.0, -40000.0]
    assert bias.tolist() == [0, -2]
    with pytest.raises(ValueError, match="zip"):
        norm_parameters([1.0, 2.0], [0.0], 1.0)
