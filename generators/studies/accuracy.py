"""Largest errors of the nonlinear functions and of number formats, compared with float64."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.functions import FUNCTIONS, PROBABILITY_FRACTION, Function, int8_table
from celosia.arch.polynomial import FUNCTION_BOUND, FUNCTION_SEGMENTS, function_table
from celosia.arch.tables import read_table
from celosia.generators.studies.format_accuracy import batches, format_measures
from celosia.sim.norm import norm_parameters, normalize, quantize_eps
from celosia.sim.polynomial import evaluate_table
from celosia.sim.requantize import quantize_multiplier, requantize
from celosia.sim.softmax import softmax

MAX_SOFTMAX_ROW = 512
"""Longest row in the measurement of the softmax (elements)."""
MAX_NORM_ROW = 1024
"""Longest row in the measurement of the norms (elements)."""

REACHES = (1.0, 2.0, 4.0, 8.0, 16.0, 25.0, 48.0)
"""Largest operand magnitudes in the range measurements of 16-bit functions."""
SIDES = ((-1.0, 1.0), (-1.0, 0.5), (-1.0, 0.32), (-1.0, 0.16), (-1.0, 0.04), (-0.16, 1.0))
"""Lower and upper end of these ranges, relative to the largest magnitude."""
_PLACES = 11  # one of this (prime) number of operands is measured in a range
_ROUNDING = 0.6  # half a step, plus the errors of the coefficients and two shifts, in sixteenths
_NODES = 192  # 3! * 2**5, the divisor of the error of interpolation at three Chebyshev nodes
_GROWTH = 5 / 3  # most by which three such nodes enlarge a difference

Report = dict[str, dict[str, float]]
Progress = Callable[[str, int, int], None]

# Independent of celosia.arch.functions on purpose, with other library calls.
_EXACT: dict[str, Callable[[float], float]] = {
    "gelu_erf": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * _cubic(x))),
    "silu": lambda x: 0.5 * x * (1 + math.tanh(x / 2)),
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 0.5 * (1 + math.tanh(x / 2)),
    "tanh": math.tanh,
    "exp": math.exp,
}

_SCALES = read_table(Path(__file__).with_suffix(".toml"))
_TABLE_SCALES, _WIDE_SCALES = _SCALES["tables"], _SCALES["wide"]
"""Scales and zero points (x_scale, x_zero, y_scale, y_zero) for the measurement of INT8 tables, and
(x_scale, y_scale, y_zero) for functions of 16-bit operands."""


def accuracy_report(rows: int = 100_000, seed: int = 1, progress: Progress | None = None) -> Report:
    """Return the largest error of each nonlinear function, norm and number format against float64.

    The result is a dictionary from name to measurements. ``max_lsb`` is the largest error and
    ``bound_lsb`` its documented bound, both in units of the output's lowest bit. ``cases`` is the
    number of tested cases. Softmax, norms and formats are tested on ``rows`` random rows. Raises
    :class:`InputError` if ``rows`` is not positive.
    """
    if rows < 1:
        raise InputError(f"Accuracy rows must be a positive integer, not {rows!r}")
    tell = progress or (lambda name, done, total: None)
    report: Report = {}

    def measure(name: str, bound: float, total: int, batches: Iterator[tuple[int, float]]) -> None:
        worst, done = 0.0, 0
        tell(name, 0, total)
        for count, error in batches:
            worst, done = max(worst, error), done + count
            tell(name, done, total)
        report[name] = {"max_lsb": worst, "bound_lsb": bound, "cases": done}

    for name, scales in _TABLE_SCALES.items():
        measure(name, 0.5, 256 * len(scales), _table_errors(name))
    for name, wide in _WIDE_SCALES.items():
        measure(f"{name}_16", 0.7, len(wide) << 16, _wide_errors(name))
    for name in _WIDE_SCALES:
        title, total = f"{name}_16_ranges", len(REACHES) * len(SIDES)
        tell(title, 0, total)
        figures = [_range_errors(name, reach, side) for reach in REACHES for side in SIDES]
        worst, bound = max(
            figures, key=lambda error_and_bound: error_and_bound[0] / error_and_bound[1]
        )
        report[title] = {"max_lsb": worst, "bound_lsb": bound, "cases": total}
        tell(title, total, total)
    measure("softmax", 0.51, rows, _softmax_errors(rows, np.random.default_rng([seed, 0])))
    for index, rms in enumerate((False, True)):
        random = np.random.default_rng([seed, 1 + index])
        measure("rmsnorm" if rms else "layernorm", 1.0, rows, _norm_errors(rows, rms, random))
    for index, (name, bound, errors) in enumerate(format_measures()):
        measure(name, bound, rows, errors(rows, np.random.default_rng([seed, 3 + index])))
    return report


def _cubic(x: float) -> float:
    return x + 0.044715 * x * x * x


def _distance(y: NDArray[np.int64], exact: NDArray[np.float64], width: int) -> float:
    half = 1 << (width - 1)
    return float(np.abs(y - np.clip(exact, -half, half - 1)).max())


def _table_errors(name: str) -> Iterator[tuple[int, float]]:
    for x_scale, x_zero, y_scale, y_zero in _TABLE_SCALES[name]:
        y = int8_table(FUNCTIONS[name], x_scale, x_zero, y_scale, y_zero)
        exact = [_EXACT[name](x_scale * (q - x_zero)) / y_scale + y_zero for q in range(-128, 128)]
        yield len(y), _distance(y, np.array(exact), 8)


def _wide_errors(name: str) -> Iterator[tuple[int, float]]:
    x = np.arange(-(1 << 15), 1 << 15)
    for x_scale, y_scale, y_zero in _WIDE_SCALES[name]:
        y = evaluate_table(function_table(FUNCTIONS[name], x_scale, y_scale, y_zero), x, -128, 127)
        exact = [_EXACT[name](x_scale * float(q)) / y_scale + y_zero for q in x]
        yield len(x), _distance(y, np.array(exact), 8)


def polynomial_bound(
    function: Function, x_scale: float, y_scale: float, y_zero: int, low: float, high: float
) -> float:
    """Return an upper bound of a piecewise polynomial's error, in steps of the quantized output.

    The polynomial approximates the smooth ``function`` for inputs from ``low`` to ``high``,
    equation (17) of ``docs/numerics.md``. ``x_scale`` and ``y_scale`` are the scales of input and
    output, ``y_zero`` is the output's zero point.
    """
    length = x_scale * (1 << 16) / FUNCTION_SEGMENTS
    first, last = math.floor(low / length), math.ceil(high / length)
    x = np.linspace(first * length, last * length, 200 * (last - first) + 1)
    step = length / 200
    third = np.abs(np.diff(function(x), 3)).max() / step**3
    beyond = max(0.0, float(np.abs(function(x) / y_scale + y_zero).max()) - FUNCTION_BOUND)
    return float(_ROUNDING + third * length**3 / _NODES / y_scale + _GROWTH * beyond)


def _range_errors(name: str, reach: float, side: tuple[float, float]) -> tuple[float, float]:
    """Return the error and the bound of a function in a range whose results span INT8."""
    low, high = side[0] * reach, side[1] * reach
    x_scale = reach / ((1 << 15) - 1)
    x = np.arange(math.ceil(low / x_scale), math.floor(high / x_scale) + 1, _PLACES)
    exact = np.array([_EXACT[name](x_scale * float(q)) for q in x])
    least, most = min(exact.min(), 0.0), max(exact.max(), 0.0)
    y_scale = (most - least) / 255
    y_zero = int(np.clip(round(-128 - least / y_scale), -128, 127))
    table = function_table(FUNCTIONS[name], x_scale, y_scale, y_zero)
    error = _distance(evaluate_table(table, x, -128, 127), exact / y_scale + y_zero, 8)
    return error, polynomial_bound(FUNCTIONS[name], x_scale, y_scale, y_zero, low, high)


def _lengths(rows: int, longest: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield batches as (rows, length): first the longest, then lengths uniform on a log scale."""
    for index, count in enumerate(batches(rows)):
        yield count, round(2 ** random.uniform(0, math.log2(longest))) if index else longest


def softmax_rows(
    kind: int, count: int, length: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return test scores and a mask that is False for masked columns, both [count, length].

    Kind 0 has one large score, kind 1 normally distributed scores, kind 2 at most five different
    scores, kind 3 normally distributed scores and masked columns.
    """
    mask = np.ones((count, length), dtype=bool)
    if kind == 0:
        gap = random.integers(0, 14 * 256, (count, 1))
        q = np.broadcast_to(-gap, (count, length)).copy()
        q[:, random.integers(length)] = 0
    elif kind == 2:
        q = random.choice(random.integers(-800, 800, 5), (count, length))
    else:
        spread = 2 ** random.uniform(3, 12, (count, 1))
        q = np.rint(random.normal(0, 1, (count, length)) * spread).astype(np.int64)
    if kind == 3:
        mask = random.random((count, length)) < random.random((count, 1))
    return np.clip(q + random.integers(-9999, 9999), -32768, 32767), mask


def _softmax_errors(rows: int, random: np.random.Generator) -> Iterator[tuple[int, float]]:
    multiplier, shift = quantize_multiplier(2.0 ** (8 - PROBABILITY_FRACTION))
    for index, (count, length) in enumerate(_lengths(rows, MAX_SOFTMAX_ROW, random)):
        q, mask = softmax_rows(index % 4, count, length, random)
        y = requantize(softmax(q, mask), 0, multiplier, shift, -128, -128, 127)
        weights = np.where(mask, 2.0 ** ((q - q.max(axis=1, keepdims=True)) / 256), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        exact = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        yield count, _distance(y.astype(np.int64), 256 * exact - 128, 8)


def _norm_errors(rows: int, rms: bool, random: np.random.Generator) -> Iterator[tuple[int, float]]:
    for index, (count, length) in enumerate(_lengths(rows, MAX_NORM_ROW, random)):
        spread = 2 ** random.uniform(0, 14, (count, 1))
        mean = random.normal(0, 3, (count, 1)) * spread if index % 2 else 0.0
        s = np.clip(np.rint(random.normal(mean, spread, (count, length))), -32768, 32767)
        if index % 4 == 0:
            s[:, random.integers(length)] = random.choice([-32768, 32767])
        gamma, beta = random.normal(0, 1, length), random.normal(0, 1, length)
        y_scale, y_zero = float(random.choice([0.01, 0.03, 0.1])), int(random.integers(-20, 20))
        eps = quantize_eps(1e-5, n=length, scale=2.0**-8)
        value, _ = normalize(s.astype(np.int16), rms=rms, eps=eps)
        bias, multiplier, shift = norm_parameters(gamma, beta, y_scale)
        y = requantize(value, bias, multiplier, shift, y_zero, -128, 127)
        exact = _norm(s, rms, eps) * gamma + beta
        yield count, _distance(y.astype(np.int64), exact / y_scale + y_zero, 8)


def _norm(s: NDArray[np.float64], rms: bool, eps: int) -> NDArray[np.float64]:
    length = s.shape[1]
    centered = s if rms else s - s.mean(axis=1, keepdims=True)
    variance = (centered * centered).mean(axis=1, keepdims=True) + eps / (length * length)
    return np.asarray(centered / np.sqrt(np.maximum(variance, 1e-30)))
