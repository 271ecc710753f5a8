"""Tests of celosia.sim.requantize: published vectors, plain Python integers, error messages."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from celosia.sim.requantize import (
    quantize_multiplier,
    requantize,
    rounding_high,
    rounding_shift,
    saturate16,
    wrap32,
)

VECTORS = Path(__file__).parent / "data" / "tflite"


def load_vectors(name):
    path = VECTORS / f"{name}.npz"
    with np.load(path) as arrays:
        return {key: arrays[key] for key in arrays}


@pytest.mark.parametrize("name", ["matmul", "matmul_a_transposed", "matmul_b_transposed"])
def test_equals_tflite_matmul(name):
    v = load_vectors(name)
    a = v["a"].astype(np.int64) - v["a_zero_point"]
    b = v["b"].astype(np.int64) - v["b_zero_point"]
    a = np.swapaxes(a, -1, -2) if v["a_transpose"] else a
    b = np.swapaxes(b, -1, -2) if v["b_transpose"] else b
    y = requantize(a @ b, 0, v["multiplier"], v["shift"], v["y_zero_point"], -128, 127)
    np.testing.assert_array_equal(y, v["y"])


@pytest.mark.parametrize("name", ["linear", "linear_per_channel", "linear_weight_zero_point"])
def test_equals_tflite_linear(name):
    v = load_vectors(name)
    x = v["x"].astype(np.int64) - v["x_zero_point"]
    w = v["w"].astype(np.int64) - v["w_zero_point"]
    y = requantize(
        x @ w.T,
        v["bias"],
        v["multiplier"],
        v["shift"],
        v["y_zero_point"],
        v["y_min"],
        v["y_max"],
    )
    np.testing.assert_array_equal(y, v["y"])


def away_from_zero(x):
    """Round a fraction to nearest, ties away from zero."""
    return int(math.copysign(1, x)) * math.floor(abs(x) + Fraction(1, 2))


def test_equals_exact_fractions():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        x, bias, multiplier = (
            int(rng.integers(-(1 << 31), 1 << 31)) >> int(rng.integers(32)) for _ in range(3)
        )
        shift = int(rng.integers(-31, 31))
        zero = int(rng.integers(-128, 128))
        wrapped = (x + bias) << max(shift, 0)
        wrapped = (wrapped + (1 << 31)) % (1 << 32) - (1 << 31)
        high = math.floor(Fraction(wrapped * multiplier, 1 << 31) + Fraction(1, 2))
        y = away_from_zero(Fraction(high, 1 << max(-shift, 0))) + zero
        y = min(max(y, -300), 500)
        assert requantize(x, bias, multiplier, shift, zero, -300, 500) == y


def test_ties():
    np.testing.assert_array_equal(
        rounding_shift([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6], 2),
        [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2],
    )
    np.testing.assert_array_equal(rounding_high([-3, -1, 1, 3], 1 << 30), [-1, 0, 1, 2])
    assert rounding_high(-(1 << 31), -(1 << 31)) == 1 << 31
    np.testing.assert_array_equal(rounding_shift([-7, 7], 0), [-7, 7])


def test_wraps_and_saturates():
    np.testing.assert_array_equal(wrap32([1 << 31, -(1 << 31) - 1]), [-(1 << 31), (1 << 31) - 1])
    y = saturate16([40000, -40000, -3])
    assert y.dtype == np.int16
    np.testing.assert_array_equal(y, [32767, -32768, -3])
    # A bias may carry the sum over the edge.
    y = requantize((1 << 31) - 1, 1, (1 << 31) - 1, -24, 0, -128, 127)
    assert y == -128
    assert y.dtype == np.int32


def test_broadcasts():
    x = np.arange(-12, 12).reshape(2, 3, 4) << 20
    multiplier = np.array([1 << 30, 1 << 29, -(1 << 30), 0])
    y = requantize(x, 0, multiplier, [-18, -18, -18, 0], 0, -128, 127)
    np.testing.assert_array_equal(y[0, 0], [-24, -11, 20, 0])
    assert requantize(np.zeros((0, 4)), 0, multiplier, 0, 0, -128, 127).shape == (0, 4)


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (-0.75, (-(3 << 29), 0)),
        (1 - 2.0**-40, (1 << 30, 1)),
        (2.0**-32, (1 << 30, -31)),
        (2.0**-33, (0, 0)),
        (2.0**30 - 1, ((1 << 31) - 2, 30)),
        (0.1, (1717986918, -3)),
    ],
)
def test_quantizes_multipliers(real, expected):
    assert quantize_multiplier(real) == expected


def run_refused(function, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function()


def test_refuses():
    run_refused(
        lambda: quantize_multiplier(math.nan), "Requantization factor must be finite, not nan"
    )
    run_refused(
        lambda: quantize_multiplier(2.0**30),
        "Requantization factor must be less than 2**30, not 1073741824.0",
    )
    for shift in (-32, 31):
        run_refused(
            lambda shift=shift: requantize(0, 0, 0, [0, shift], 0, -128, 127),
            f"Shift must be from -31 to 30, not {shift}",
        )
