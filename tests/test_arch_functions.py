"""The functions in float64 and the tables made of them."""

import math

import numpy as np
import pytest

from celosia.arch.functions import FUNCTIONS, int8_table, octave_table, round_away


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("gelu_erf", 1.0, 0.8413447460685429),
        ("gelu_erf", -8.0, -4.976768e-15),
        ("gelu_tanh", 1.0, 0.8411919906082768),
        ("silu", -1.0, -0.2689414213699951),
        ("relu", -1.0, 0.0),
        ("sigmoid", 2.0, 0.8807970779778823),
        ("sigmoid", -900.0, 0.0),
        ("tanh", 0.5, 0.46211715726000973),
        ("exp", -1.0, 0.36787944117144233),
        ("exp", 900.0, math.inf),
        ("reciprocal", 4.0, 0.25),
        ("reciprocal", 0.0, math.inf),
        ("leaky_relu", -3.0, -0.03),
        ("leaky_relu", 3.0, 3.0),
        ("relu6", 7.0, 6.0),
        ("relu_squared", 3.0, 9.0),
        ("hard_sigmoid", 1.5, 0.75),
        ("hard_swish", 1.5, 1.125),
        ("quick_gelu", 1.0, 0.8457957659328212),
        ("elu", -1.0, -0.6321205588285577),
        ("mish", 1.0, 0.8650983882673103),
        ("rsqrt", 4.0, 0.5),
        ("rsqrt", -1.0, math.inf),
    ],
)
def test_values(name, x, y):
    assert FUNCTIONS[name](np.array([x]))[0] == pytest.approx(y, rel=1e-6)


def test_gelu_is_exact_between_the_places_of_its_table():
    x = np.concatenate([np.linspace(-45, 45, 20001), [-1e300, -0.0, 1e-300, 1e300]])
    exact = [0.5 * each * math.erfc(-each / math.sqrt(2)) for each in x]
    error = np.abs(FUNCTIONS["gelu_erf"](x) - exact)
    assert (error <= 2.0**-51 * np.maximum(np.abs(x), 1)).all()
    assert np.isnan(FUNCTIONS["gelu_erf"](np.array([math.nan])))


def test_round_away():
    assert round_away(np.array([0.5, 1.5, -0.5, -1.5, 2.4])).tolist() == [1, 2, -1, -2, 2]


def test_table_follows_the_rule():
    table = int8_table(FUNCTIONS["relu"], 0.5, -3, 0.25, 7)
    assert table.tolist() == [min(max(2 * (q + 3), 0) + 7, 127) for q in range(-128, 128)]


def test_table_clamps_to_the_operand_width():
    table = int8_table(FUNCTIONS["exp"], 0.5, 0, 0.01, -3, operand_width=5)
    assert (table.min(), table.max()) == (-3, 15)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_scales_are_checked(scale):
    message = f"^Table y_scale must be positive and finite, not {scale}$"
    with pytest.raises(ValueError, match=message):
        int8_table(FUNCTIONS["tanh"], 1.0, 0, scale, 0)


def test_octave_table():
    table = octave_table()
    assert (table[0], table[128], len(table)) == (1 << 16, 46341, 256)
