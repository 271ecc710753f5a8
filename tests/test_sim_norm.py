"""Tests of celosia.sim.norm: float64, exact fractions, error messages."""

import math
import re

import numpy as np
import pytest

from celosia.sim.norm import norm_parameters, normalize, quantize_eps
from celosia.sim.requantize import requantize


def exact_norm(s, *, rms, eps):
    """Return the normalized rows in float64, from exact integers up to the root's operand."""
    n = s.shape[-1]
    s = s.astype(np.int64)
    total = np.zeros((len(s), 1), np.int64) if rms else s.sum(-1, keepdims=True)
    variance = n * (s * s).sum(-1, keepdims=True) - total * total + eps
    root = np.sqrt(np.where(variance == 0, 1, variance).astype(np.float64))
    return np.where(variance == 0, 0, (n * s - total) / root)


def rows_of(kind, rng, m, n):
    """Return rows [m, n] of INT16 of some kind."""
    if kind == "normal":
        return np.clip(np.rint(rng.normal(0, rng.choice([3, 300, 8000]), (m, n))), -32768, 32767)
    if kind == "uniform":
        return rng.integers(-32768, 32768, (m, n))
    if kind == "constant":
        return np.broadcast_to(rng.integers(-32768, 32768, (m, 1)), (m, n))
    if kind == "large mean":
        return rng.choice([-32000, 32000], (m, 1)) + rng.integers(-2, 3, (m, n))
    if kind == "extreme":
        return rng.choice([-32768, 32767], (m, n))
    rows = np.zeros((m, n))  # one outlier
    rows[np.arange(m), rng.integers(n, size=m)] = rng.choice([-32768, -1, 1, 32767], m)
    return rows


KINDS = ["normal", "uniform", "constant", "large mean", "extreme", "outlier"]


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_int8_within_an_lsb_of_float64(kind, rms):
    rng = np.random.default_rng(KINDS.index(kind))
    worst = 0.0
    for n in (1, 2, 3, 5, 17, 32, 64, 100, 288, 384, 768, 1023, 1024):
        m = 1 + 16384 // n
        x = rows_of(kind, rng, m, n).astype(np.int16)
        eps = int(rng.choice([0, 1, quantize_eps(1e-5, n=n, scale=2.0**-8)]))
        gamma = rng.normal(0, 1, n)
        beta = rng.normal(0, 1, n)
        y_scale = rng.choice([0.01, 0.03, 0.1])
        value, s = normalize(x, rms=rms, eps=eps)
        np.testing.assert_array_equal(s, x)
        bias, multiplier, shift = norm_parameters(gamma, beta, y_scale)
        y = requantize(value, bias, multiplier, shift, 3, -128, 127)
        exact = (exact_norm(x, rms=rms, eps=eps) * gamma + beta) / y_scale + 3
        worst = max(worst, np.abs(y - np.clip(exact, -128, 127)).max())
    assert worst <= 0.55


def test_values_near_float64():
    rng = np.random.default_rng(7)
    for n in (1, 7, 8192):
        x = rng.integers(-32768, 32768, (9, n))
        value, _ = normalize(x, rms=False, eps=5)
        exact = exact_norm(x, rms=False, eps=5)
        assert np.abs(value / 65536 - exact).max() <= 2.0**-17 * (1 + 1.13 * np.abs(exact).max())


def test_sum_saturates():
    x = np.array([[30000, -30000, 5]], np.int16)
    r = np.array([[30000, -30000, -7]], np.int16)
    value, s = normalize(x, r, rms=True, eps=0)
    np.testing.assert_array_equal(s, [[32767, -32768, -2]])
    np.testing.assert_array_equal(value, normalize(s, rms=True, eps=0)[0])
    assert value.dtype == np.int32
    assert s.dtype == np.int16


def test_exact_cases():
    # Variance 0 without eps, and a row whose inverse root is a power of two.
    np.testing.assert_array_equal(normalize([[7, 7]], rms=False, eps=0)[0], [[0, 0]])
    np.testing.assert_array_equal(normalize([[0, 0]], rms=True, eps=0)[0], [[0, 0]])
    np.testing.assert_array_equal(normalize([[0, 1]], rms=False, eps=0)[0], [[-65536, 65536]])
    # A tie is rounded up: 1 / 2**17, and its negative.
    value, _ = normalize([[1, -1]], rms=True, eps=(1 << 36) - 4)
    np.testing.assert_array_equal(value, [[1, 0]])


def test_longest_row_of_extremes_fits():
    x = np.zeros((1, 8192), np.int16)
    x[0, 0] = -32768
    for rms in (False, True):
        value, _ = normalize(x, rms=rms, eps=0)
        assert abs(value.min() + 8192**0.5 * (1 << 16)) < 600


def test_parameters_of_small_gamma():
    n = 64
    rng = np.random.default_rng(3)
    x = rng.integers(-3000, 3000, (50, n))
    value, _ = normalize(x, rms=False, eps=1)
    exact = exact_norm(x, rms=False, eps=1)
    beta = rng.uniform(-2, 2, n)
    for small in (0.0, -0.0, 1e-30, -1e-9, 1e-6):
        gamma = np.where(np.arange(n) % 2, small, 0.7)
        y = requantize(value, *norm_parameters(gamma, beta, 0.02), 0, -128, 127)
        wanted = np.clip((exact * gamma + beta) / 0.02, -128, 127)
        assert np.abs(y - wanted).max() <= 0.55
    bias, multiplier, shift = norm_parameters([0.0], [0.0], 0.02)
    assert (bias[0], multiplier[0], shift[0]) == (0, 0, 0)
    assert bias.dtype == multiplier.dtype == np.int32
    assert shift.dtype == np.int8


def test_quantizes_eps():
    assert quantize_eps(1e-5, n=64, scale=2.0**-10) == round(64 * 64 * 1e-5 * (1 << 20))
    assert quantize_eps(1.0, n=4096, scale=1e-9) == (1 << 56) - 1
    assert quantize_eps(0.0, n=4096, scale=1e-9) == 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda: normalize(np.zeros((1, 8193)), rms=False, eps=0),
            "Normalized row must have at most 8192 elements, not 8193",
        ),
        (
            lambda: normalize([[0]], rms=False, eps=1 << 56),
            "Added variance must be from 0 to 2**56 - 1, not 72057594037927936",
        ),
        (
            lambda: normalize([[0]], rms=False, eps=-1),
            "Added variance must be from 0 to 2**56 - 1, not -1",
        ),
        (
            lambda: norm_parameters([70000.0], [0.0], 1.0),
            "Norm's gamma must be less than 2**16 output steps, but gamma is 70000.0 and the "
            "output step is 1.0",
        ),
        (
            lambda: norm_parameters([math.inf], [0.0], 1.0),
            "Requantization factor must be finite, not inf",
        ),
    ],
)
def test_refuses(function, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function()
