"""Tests of sim.elementwise: published vectors, float64, error messages."""

import re
from pathlib import Path

import numpy as np
import pytest

from sim.elementwise import add, add_sum, mul, mul_product
from sim.requantize import quantize_multiplier

VECTORS = Path(__file__).parent / "data" / "tflite"


def load_vectors(name):
    path = VECTORS / f"{name}.npz"
    with np.load(path) as arrays:
        return {key: arrays[key] if arrays[key].ndim else int(arrays[key]) for key in arrays}


def test_add_equals_tflite():
    v = load_vectors("add")
    y = add(
        v["a"],
        v["b"],
        i_zero=v["a_zero_point"],
        r_zero=v["b_zero_point"],
        i_factor=(v["a_multiplier"], v["a_shift"]),
        r_factor=(v["b_multiplier"], v["b_shift"]),
        factor=(v["multiplier"], v["shift"]),
        zero=v["y_zero_point"],
    )
    np.testing.assert_array_equal(y, v["y"])


def test_mul_equals_tflite():
    v = load_vectors("mul")
    y = mul(
        v["a"],
        v["b"],
        i_zero=v["a_zero_point"],
        r_zero=v["b_zero_point"],
        factor=(v["multiplier"], v["shift"]),
        zero=v["y_zero_point"],
    )
    np.testing.assert_array_equal(y, v["y"])


def all_pairs():
    every = np.arange(-128, 128)
    return np.repeat(every, 256), np.tile(every, 256)


@pytest.mark.parametrize(
    ("i_scale", "r_scale", "y_scale", "i_zero", "r_zero", "zero"),
    [(0.05, 0.05, 0.1, 0, 0, 0), (0.013, 0.2, 0.11, -128, 127, 5), (1.7, 0.003, 2.9, 3, -7, -50)],
)
def test_near_float64(i_scale, r_scale, y_scale, i_zero, r_zero, zero):
    i, r = all_pairs()
    twice = 2 * max(i_scale, r_scale)
    y = add(
        i,
        r,
        i_zero=i_zero,
        r_zero=r_zero,
        i_factor=quantize_multiplier(i_scale / twice),
        r_factor=quantize_multiplier(r_scale / twice),
        factor=quantize_multiplier(twice / (1 << 20) / y_scale),
        zero=zero,
    )
    exact = ((i - i_zero) * i_scale + (r - r_zero) * r_scale) / y_scale + zero
    assert np.abs(y - np.clip(exact, -128, 127)).max() <= 0.5001

    y = mul(
        i,
        r,
        i_zero=i_zero,
        r_zero=r_zero,
        factor=quantize_multiplier(i_scale * r_scale / y_scale),
        zero=zero,
    )
    exact = (i - i_zero) * i_scale * (r - r_zero) * r_scale / y_scale + zero
    # Double rounding costs up to the first rounding's half unit.
    assert np.abs(y - np.clip(exact, -128, 127)).max() <= 0.51 + i_scale * r_scale / y_scale


def test_sums_and_products_are_int32():
    total = add_sum([255, -255], [255, -255], (1 << 30, 0), ((1 << 31) - 1, -1))
    assert total.dtype == np.int32
    np.testing.assert_array_equal(total, [267386880, -267386880])
    np.testing.assert_array_equal(mul_product([255, -255], 255), [65025, -65025])


@pytest.mark.parametrize("shift", [-32, 1])
def test_refuses_shift(shift):
    message = f"Shift of an addition's input must be from -31 to 0, not {shift}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        add_sum(0, 0, (1 << 30, 0), (1 << 30, shift))
