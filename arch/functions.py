"""The nonlinear functions in float64, and the tables and formats that circuits make of them."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError

Floats = NDArray[np.float64]
Function = Callable[[Floats], Floats]

TABLE_ENTRIES = 256
"""Entries of an activation table, entry 0 for -128 (entries)."""
OCTAVE_FRACTION = 8
"""Fraction bits of a softmax score, which counts octaves (bits)."""
OCTAVE_MANTISSA = 16
"""Fraction bits of the mantissa of a power of two, which is from 1/2 to 1 (bits)."""
OCTAVE_LIMIT = 32
"""Octaves below the largest score from which on a weight is 0 (octaves)."""
WEIGHT_FRACTION = 28
"""Fraction bits of the weights that a softmax adds (bits)."""
PROBABILITY_FRACTION = 24
"""Fraction bits of a probability (bits)."""


def gelu_erf(x: Floats) -> Floats:
    """Return ``x * Phi(x)``, ``Phi`` the normal distribution's (Hendrycks and Gimpel 2016)."""
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    return np.asarray(0.5 * x * erfc(-x / math.sqrt(2)))


def gelu_tanh(x: Floats) -> Floats:
    """Return GELU's approximation by a hyperbolic tangent."""
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
    """Return ``x``, or a hundredth of it where it is negative."""
    return np.asarray(np.where(x < 0, 0.01 * x, x))


def relu6(x: Floats) -> Floats:
    """Return ``x`` between 0 and 6."""
    return np.asarray(np.clip(x, 0.0, 6.0))


def relu_squared(x: Floats) -> Floats:
    """Return ``max(x, 0) ** 2`` (So et al. 2021, "Primer")."""
    return np.asarray(np.maximum(x, 0.0) ** 2)


def hard_sigmoid(x: Floats) -> Floats:
    """Return ``x / 6 + 1/2`` between 0 and 1."""
    return np.asarray(np.clip(x / 6 + 0.5, 0.0, 1.0))


def hard_swish(x: Floats) -> Floats:
    """Return ``x * hard_sigmoid(x)`` (Howard et al. 2019)."""
    return x * hard_sigmoid(x)


def quick_gelu(x: Floats) -> Floats:
    """Return GELU's approximation ``x * sigmoid(1.702 x)`` (Hendrycks and Gimpel 2016)."""
    return x * sigmoid(1.702 * x)


def elu(x: Floats) -> Floats:
    """Return ``x``, or ``exp(x) - 1`` where it is negative (Clevert et al. 2016)."""
    return np.asarray(np.where(x < 0, np.expm1(np.minimum(x, 0.0)), x))


def mish(x: Floats) -> Floats:
    """Return ``x * tanh(log(1 + exp(x)))`` (Misra 2020)."""
    return np.asarray(x * np.tanh(np.logaddexp(0, x)))


def exp(x: Floats) -> Floats:
    """Return ``e**x``, infinite where float64 cannot hold it."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x))


def reciprocal(x: Floats) -> Floats:
    """Return ``1 / x``, infinite at 0."""
    return np.divide(1.0, x, out=np.full_like(x, np.inf), where=x != 0)


def rsqrt(x: Floats) -> Floats:
    """Return ``1 / sqrt(x)``, infinite at 0 and below."""
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
"""Functions without a kink or a pole but at 0, which polynomials in segments come close to."""


def round_away(x: Floats) -> Floats:
    """Return the nearest integers, ties away from zero, as float64."""
    return np.asarray(np.copysign(np.floor(np.abs(x) + 0.5), x))


def int8_table(
    function: Function,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    operand_width: int = 8,
) -> NDArray[np.int64]:
    """Return a function of a quantized operand as a table of 256 quantized results.

    Entry ``q + 128`` is ``clamp(round(f(x_scale * (q - x_zero)) / y_scale) + y_zero)``, TFLite's
    rule, rounded to nearest with ties away from zero and clamped to signed ``operand_width`` bits.
    Raises :class:`InputError` where a scale is not positive and finite.
    """
    for name, scale in (("x_scale", x_scale), ("y_scale", y_scale)):
        if not 0 < scale < math.inf:
            raise InputError(f"Table {name} must be positive and finite, not {scale!r}")
    half = 1 << (operand_width - 1)
    q = np.arange(-TABLE_ENTRIES // 2, TABLE_ENTRIES // 2)  # [256]
    y = round_away(function(x_scale * (q - x_zero).astype(np.float64)) / y_scale) + y_zero
    return np.clip(y, -half, half - 1).astype(np.int64)


def octave_table() -> NDArray[np.int64]:
    """Return the mantissas of ``2**-(f / 256)`` for f = 0..255, rounded to Q1.16."""
    steps = np.arange(1 << OCTAVE_FRACTION) / 2.0**OCTAVE_FRACTION  # [256] octaves
    return np.rint(2.0 ** (OCTAVE_MANTISSA - steps)).astype(np.int64)
