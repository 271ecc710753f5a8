"""Nonlinear functions in float64, 256-entry activation tables, and number formats of softmax."""

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError

Floats = NDArray[np.float64]
Function = Callable[[Floats], Floats]

TABLE_ENTRIES = 256
"""Entries of an activation table; entry 0 is for operand -128 (entries)."""
OCTAVE_FRACTION = 8
"""Fraction bits of a softmax score in octaves, powers of two (bits)."""
OCTAVE_MANTISSA = 16
"""Fraction bits of the mantissa of a power of two; the mantissa is between 1/2 and 1 (bits)."""
OCTAVE_LIMIT = 32
"""Distance below the largest score from which a softmax weight is 0 (octaves)."""
WEIGHT_FRACTION = 28
"""Fraction bits of softmax weights when they are summed (bits)."""
PROBABILITY_FRACTION = 24
"""Fraction bits of a probability (bits)."""


def gelu_erf(x: Floats) -> Floats:
    """Return the exact GELU ``x * Phi(x)`` (Hendrycks and Gimpel 2016).

    ``Phi`` is the cumulative distribution function of the standard normal distribution. It is
    evaluated as a Taylor polynomial around the nearest tabulated point, with an absolute error
    below 2**-51.
    """
    place = np.rint(np.clip(x, -_NORMAL_REACH, _NORMAL_REACH) * _NORMAL_STEPS)
    index = np.nan_to_num(place).astype(np.int64) + _NORMAL_REACH * _NORMAL_STEPS
    # Beyond the table's ends Phi is constant.
    away = np.clip(x - place / _NORMAL_STEPS, -1 / _NORMAL_STEPS, 1 / _NORMAL_STEPS)
    last, *rest = _normal_terms()[::-1]
    total = last[index]
    for term in rest:
        total = total * away + term[index]
    return np.asarray(x * total)


_NORMAL_REACH, _NORMAL_STEPS = 40, 64
"""Largest tabulated magnitude of the normal CDF's argument, and places for each unit."""


@functools.cache
def _normal_terms() -> Floats:
    """Return the Taylor coefficients of the normal CDF around each place, [order, places]."""
    x = np.arange(-_NORMAL_REACH * _NORMAL_STEPS, _NORMAL_REACH * _NORMAL_STEPS + 1) / _NORMAL_STEPS
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    hermite = [np.ones_like(x), x]
    for order in range(1, 5):
        hermite.append(x * hermite[-1] - order * hermite[-2])
    terms = [
        (-1) ** order * each * density / math.factorial(order + 1)
        for order, each in enumerate(hermite)
    ]
    return np.array([erfc(-x / math.sqrt(2)) / 2, *terms])


def gelu_tanh(x: Floats) -> Floats:
    """Return GELU's approximation ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def sigmoid(x: Floats) -> Floats:
    """Return ``1 / (1 + exp(-x))``."""
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def silu(x: Floats) -> Floats:
    """Return ``x * sigmoid(x)``."""
    return x * sigmoid(x)


def relu(x: Floats) -> Floats:
    """Return ``max(x, 0)``."""
    return np.asarray(np.maximum(x, 0.0))


def tanh(x: Floats) -> Floats:
    """Return the hyperbolic tangent."""
    return np.asarray(np.tanh(x))


def leaky_relu(x: Floats) -> Floats:
    """Return ``x`` if it is at least 0, else ``x / 100``."""
    return np.asarray(np.where(x < 0, 0.01 * x, x))


def relu6(x: Floats) -> Floats:
    """Return ``x`` clipped to 0..6."""
    return np.asarray(np.clip(x, 0.0, 6.0))


def relu_squared(x: Floats) -> Floats:
    """Return ``max(x, 0) ** 2`` (So et al. 2021, "Primer")."""
    return np.asarray(np.maximum(x, 0.0) ** 2)


def hard_sigmoid(x: Floats) -> Floats:
    """Return ``x / 6 + 1/2`` clipped to 0..1."""
    return np.asarray(np.clip(x / 6 + 0.5, 0.0, 1.0))


def hard_swish(x: Floats) -> Floats:
    """Return ``x * hard_sigmoid(x)`` (Howard et al. 2019)."""
    return x * hard_sigmoid(x)


def quick_gelu(x: Floats) -> Floats:
    """Return the approximation ``x * sigmoid(1.702 x)`` of GELU (Hendrycks and Gimpel 2016)."""
    return x * sigmoid(1.702 * x)


def elu(x: Floats) -> Floats:
    """Return ``x`` if it is at least 0, else ``exp(x) - 1`` (Clevert et al. 2016)."""
    return np.asarray(np.where(x < 0, np.expm1(np.minimum(x, 0.0)), x))


def mish(x: Floats) -> Floats:
    """Return ``x * tanh(log(1 + exp(x)))`` (Misra 2020)."""
    return np.asarray(x * np.tanh(np.logaddexp(0, x)))


def exp(x: Floats) -> Floats:
    """Return ``e**x``; infinity if the result exceeds float64."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x))


def reciprocal(x: Floats) -> Floats:
    """Return ``1 / x``; infinity at 0."""
    return np.divide(1.0, x, out=np.full_like(x, np.inf), where=x != 0)


def rsqrt(x: Floats) -> Floats:
    """Return ``1 / sqrt(x)``; infinity at 0 and below."""
    return np.power(x, -0.5, out=np.full_like(x, np.inf), where=x > 0)


FUNCTIONS: dict[str, Function] = {
    function.__name__: function
    for function in (
        gelu_erf,
        gelu_tanh,
        silu,
        relu,
        leaky_relu,
        relu6,
        relu_squared,
        hard_sigmoid,
        hard_swish,
        quick_gelu,
        elu,
        mish,
        sigmoid,
        tanh,
        exp,
        reciprocal,
        rsqrt,
    )
}
"""Every function by name."""

SMOOTH_FUNCTIONS = tuple(
    name
    for name in FUNCTIONS
    if name not in {"relu", "relu6", "hard_sigmoid", "hard_swish", "reciprocal", "rsqrt"}
)
"""Functions that segmented polynomials approximate well: without kinks or poles, except at 0."""


def round_away(x: Floats) -> Floats:
    """Return ``x`` rounded to the nearest integers, ties away from zero, as float64."""
    return np.asarray(np.copysign(np.floor(np.abs(x) + 0.5), x))


def int8_table(
    function: Function,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    operand_width: int = 8,
) -> NDArray[np.int64]:
    """Return a table [256] of a function's quantized results for all signed 8-bit operands ``q``.

    Entry ``q + 128`` is ``clamp(round(function(x_scale * (q - x_zero)) / y_scale) + y_zero)``.
    ``round`` takes ties away from zero. ``clamp`` limits to ``operand_width`` signed bits. Raises
    :class:`InputError` if a scale is not positive and finite.
    """
    for name, scale in (("x_scale", x_scale), ("y_scale", y_scale)):
        if not 0 < scale < math.inf:
            raise InputError(f"Table {name} must be positive and finite, not {scale!r}")
    half = 1 << (operand_width - 1)
    q = np.arange(-TABLE_ENTRIES // 2, TABLE_ENTRIES // 2)  # [256]
    y = round_away(function(x_scale * (q - x_zero).astype(np.float64)) / y_scale) + y_zero
    return np.clip(y, -half, half - 1).astype(np.int64)


def octave_table() -> NDArray[np.int64]:
    """Return the values ``2**-(f / 256)`` for f = 0..255, rounded to Q1.16, as a table [256]."""
    steps = np.arange(1 << OCTAVE_FRACTION) / 2.0**OCTAVE_FRACTION  # [256] octaves
    return np.rint(2.0 ** (OCTAVE_MANTISSA - steps)).astype(np.int64)
