"""Steps that lose least, against a search over all that are looked at and values that fit."""

import numpy as np
import pytest

from celosia.arch.formats import FORMATS
from celosia.arch.functions import gelu_erf
from celosia.generators.quantize.balance import useful_range
from celosia.generators.quantize.calibrate import Range
from celosia.generators.quantize.steps import (
    best_range,
    best_step,
    best_steps,
    kept_range,
    spread_range,
    upper_step,
    wide_step,
)
from celosia.generators.quantize.stored import (
    error_spread,
    factors_of,
    quantize_weights,
    trained_steps,
)

RNG = np.random.default_rng(5)
CLIPS = 2.0 ** -(np.arange(9) / 8)


def clamped(values, step, most):
    return np.clip(np.rint(values / step), -most, most) * step


def test_wide_steps_leave_room_for_twice_the_largest_value() -> None:
    assert wide_step(np.array([[1.0, -3.0], [2.0, 0.0]])) == pytest.approx(6 / 32767, rel=1e-12)
    assert wide_step(np.zeros((2, 2))) == 1.0


@pytest.mark.parametrize("most", [7, 127])
def test_the_best_step_of_each_column_loses_least(most: int) -> None:
    values = RNG.standard_t(2, (300, 12))
    values[:, 3] = 0
    steps = best_steps(values, most)
    assert steps[3] == 1 / most == best_step(values[:, 3], most)
    for column in (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11):
        tried = CLIPS * np.abs(values[:, column]).max() / most
        losses = [
            np.sum((clamped(values[:, column], step, most) - values[:, column]) ** 2)
            for step in tried
        ]
        assert steps[column] == pytest.approx(tried[np.argmin(losses)], rel=1e-12)
        assert best_step(values[:, column], most) == steps[column]
    if most == 7:  # several columns are clipped, so that the search is seen
        assert (
            len(
                np.unique(
                    np.round(steps * most / np.where(values.any(0), np.abs(values).max(0), 1), 6)
                )
            )
            > 2
        )
    assert best_step(np.array([0.5, -1.0, 2.0]), most) <= 2 / most


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize("together", [1, 2])
def test_ranges_reproduce_columns_that_fit(bits: int, together: int) -> None:
    half, columns = 1 << bits - 1, 6
    codes = RNG.integers(-half, half, (50, columns))
    codes[0], codes[1] = -half, half - 1
    step = np.repeat([0.25, 3.0, 1e-3, 40.0, 5.0, 0.125][: columns // together], together)
    middle = np.array([0.0, 7.0, -2.0, 1.0, 100.0, -0.5])
    values = middle + codes * step
    made, steps = best_range(values, bits, together)
    np.testing.assert_allclose(steps, step, rtol=1e-9)
    np.testing.assert_allclose(made, middle, atol=1e-9 * 50)
    kept_middle, fine = kept_range(values, bits, together)
    upper = np.clip(np.rint((values - kept_middle) / fine), -128, 127).astype(int) >> 8 - bits
    stands_for = kept_middle + ((upper << 8 - bits) + (8 if bits == 4 else 0)) * fine
    if bits in (4, 8):
        np.testing.assert_allclose(stands_for, values, atol=1e-9 * 50)


def test_narrow_ranges_clip_outliers_and_wide_ones_do_not() -> None:
    values = np.concatenate([RNG.uniform(-1, 1, (400, 1)), [[1.6]]])
    span = 1.6 - values.min()
    for bits, most in ((4, span / 15), (8, span / 255)):
        middle, step = best_range(values, bits)
        half = 1 << bits - 1
        made = middle + np.clip(np.rint((values - middle) / step), -half, half - 1) * step
        full = values.min() + half * most
        plain = full + np.clip(np.rint((values - full) / most), -half, half - 1) * most
        if bits == 8:
            assert step[0] == pytest.approx(most)
            continue
        assert step[0] < 0.95 * most
        assert np.sum((made - values) ** 2) < 0.97 * np.sum((plain - values) ** 2)
        assert made.min() < -0.9


def test_neighbours_together_have_one_step() -> None:
    values = RNG.normal(0, [1.0, 4.0, 0.5, 0.5], (200, 4))
    for function in (lambda x: best_range(x, 4, 2), lambda x: spread_range(x, 2)):
        _, steps = function(values)
        assert steps[0] == steps[1] != steps[2] == steps[3]
    assert best_range(np.ones((5, 2)), 4)[1].tolist() == [1 / 15, 1 / 15]


def test_spread_ranges_follow_the_deviation_and_fill_int8() -> None:
    values = RNG.normal([3.0, -1.0, 0.0, 2.0], [1.0, 10.0, 0.1, 0.0], (500, 4))
    middle, steps = spread_range(values)
    np.testing.assert_allclose(middle, values.mean(axis=0))
    deviation = values.std(axis=0)
    np.testing.assert_allclose(steps[:3] / steps[0], deviation[:3] / deviation[0])
    assert steps[3] == pytest.approx(steps[0] / deviation[0])
    assert np.abs((values - middle) / steps).max() == pytest.approx(127)
    assert spread_range(np.ones((3, 2)))[1].tolist() == [1 / 127, 1 / 127]


def test_the_upper_bits_of_steps_about_zero_stand_for_their_middles() -> None:
    values = RNG.standard_t(3, 400)
    for bits in (3, 4, 8):
        half, most = 1 << bits - 1, np.abs(values).max()
        losses = {}
        for clip in CLIPS:
            step = clip * most / half
            kept = (np.clip(np.floor(values / step), -half, half - 1) + 0.5) * step
            losses[step] = np.sum((kept - values) ** 2)
        assert upper_step(values, bits) == pytest.approx(
            min(losses, key=losses.get) / 2 ** (8 - bits), rel=1e-12
        )
    assert upper_step(np.zeros(3), 4) < 1 / 128
    # A half step is exact.
    assert upper_step(np.array([-7.5, 7.5, 0.5, -8.0 + 1e-9]), 4) == pytest.approx(1 / 16)


def test_weights_that_are_codes_keep_the_largest_step() -> None:
    form = FORMATS["int4"]
    codes = RNG.integers(min(form.values), max(form.values) + 1, (6, 40))
    codes[:, 0], codes[:, 1] = max(form.values), max(form.values) - 1
    codes[5] = 0
    step = np.array([0.5, 3.0, 1e-4, 7.0, 0.01, 2.0])
    found = trained_steps(codes * step[:, None], form)
    np.testing.assert_allclose(found[:5], step[:5], rtol=1e-9)
    assert found[5] > 0
    off = codes * step[:, None]
    off[2, 7] += 0.4 * step[2]
    assert trained_steps(off, form) is None
    stored, operands, steps = quantize_weights(codes * step[:, None], form, 0, None)
    np.testing.assert_allclose(operands.T * steps[:, None], codes * step[:, None], atol=1e-9)
    assert stored.scales is None
    stored, operands, steps = quantize_weights(np.zeros((2, 40)), FORMATS["int5"], 0, None)
    assert np.isfinite(steps).all()
    assert not operands.any()
    doubled = 2 * RNG.integers(-3, 4, (3, 50))
    doubled[:, 0] = 6
    np.testing.assert_allclose(trained_steps(doubled * 0.25, form), 0.5, rtol=1e-9)


def test_scales_of_groups_keep_every_value_an_operand() -> None:
    for form in FORMATS.values():
        factors = factors_of(form)
        unit = 1 << form.fraction
        assert factors.tolist() == list(range(1, len(factors) + 1))
        largest = np.array([min(form.values), max(form.values)]) * factors[-1] / unit
        assert largest[0] >= -128
        assert largest[1] < 128
        following = np.array([min(form.values), max(form.values)]) * (factors[-1] + 1) / unit
        assert len(factors) == 255 or following[0] < -128 or following[1] > 127


def test_the_spread_of_an_error_is_a_root_of_the_inverse() -> None:
    inputs = RNG.normal(0, 1, (90, 5)) @ RNG.normal(0, 1, (5, 5))
    square = inputs.T @ inputs / 90
    damped = square + 0.01 * np.trace(square) / 5 * np.eye(5)
    spread = error_spread(inputs, 5)
    np.testing.assert_allclose(spread.T @ spread @ damped, np.eye(5), atol=1e-9)
    assert np.array_equal(np.triu(spread), spread)
    np.testing.assert_allclose(error_spread(np.zeros((3, 2)), 2), 10 * np.eye(2))


def test_inputs_that_go_together_make_up_for_errors() -> None:
    shared = RNG.normal(0, 1, (200, 2)) @ RNG.normal(0, 1, (2, 24))
    inputs = shared + RNG.normal(0, 0.05, (200, 24))
    weights = RNG.normal(0, 1, (9, 24))
    for group in (0, 8):
        losses = []
        for samples in (None, inputs):
            _, operands, steps = quantize_weights(weights, FORMATS["int4"], group, samples)
            losses.append(np.sum((inputs @ (operands * steps - weights.T)) ** 2))
        assert losses[1] < 0.3 * losses[0]


def test_the_useful_range_ends_where_a_function_changes_by_a_quarter_of_a_step() -> None:
    bounds, step = Range(-12.0, 5.0), 0.02
    used = useful_range(gelu_erf, bounds, step)
    x = np.linspace(bounds.low, bounds.high, 4097)
    assert bounds.high - 2 * (x[1] - x[0]) < used.high <= bounds.high
    assert used.low in x
    left = gelu_erf(x[x <= used.low])
    more = gelu_erf(x[x <= used.low + 1.5 * (x[1] - x[0])])
    assert np.ptp(left) <= 0.25 * step < np.ptp(more)
    assert useful_range(lambda x: 0 * x, bounds, step) == bounds
