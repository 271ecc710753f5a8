"""Rounding of a layer's weights to a format of few bits, with a small error of its outputs.

The rounding error of each weight is compensated in the weights that are rounded later (Frantar et
al. 2023, "GPTQ").
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS, WeightFormat
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.stored import Stored
from celosia.generators.quantize.steps import least_error
from celosia.sim.formats import scaled

Ints = NDArray[np.int64]

CLIPS = np.geomspace(1.0, 0.4, 16)
"""Shares of the largest magnitude that a column's values may cover."""
TRAINED = 16
"""Most values of a format whose steps are searched in weights."""
_WHOLE = 1e-6
"""Distance from a code's value at which a weight is that value (steps)."""
DAMPING = 0.01
"""Share of the mean square of inputs that is added to the square of each."""


def quantize_weights(
    exact_weights: Floats, form: WeightFormat, group: int, inputs: Floats | None
) -> tuple[Stored, Ints, Floats]:
    """Quantize a layer's weights [n, k] to few bits; return (codes, operands [k, n], scales [n]).

    A code decodes to an INT8 operand, which approximates a weight in units of its output's scale.
    If ``group`` is not 0, each ``group`` successive operands of an output share an integer factor.
    ``inputs`` [count, k] are sample inputs of the layer, or None.
    """
    weights = np.asarray(exact_weights, np.float64)  # [n, k]
    n, k = weights.shape
    values = np.array(form.values, np.int64)
    trained = None if group else trained_steps(weights, form)
    spread = None if trained is not None or inputs is None else error_spread(inputs, k)
    factors = factors_of(form) if group else np.array([1])
    tables = scaled(values, factors[:, None], form) if group else values[None]  # [factors, values]
    largest = np.abs(weights).max(axis=1)
    largest[largest == 0] = 1.0
    steps = largest / min(tables[-1].max(), -tables[-1].min())
    if trained is not None:
        steps = trained
    elif not group:
        tried, table = [clip * steps for clip in CLIPS], np.sort(values)
        steps = least_error(weights.T, tried, lambda x: _nearest(x, table))
    width, picked = group or k, np.zeros(n, np.int64)
    codes = np.zeros((k, n), np.int64)
    operands = np.zeros((k, n), np.int64)
    scales = np.zeros((-(-k // width), n), np.int64)

    def nearest(rest: Floats, row: int) -> Floats:
        if row % width == 0:
            if group:
                picked[:] = _best_tables(rest[:, row : row + width] / steps[:, None], tables)
            scales[row // width] = factors[picked]
        levels = tables[picked]  # [n, values]
        code = np.abs((rest[:, row] / steps)[:, None] - levels).argmin(axis=1)
        codes[row], operands[row] = code, levels[np.arange(n), code]
        return np.asarray(operands[row] * steps)

    round_compensated(weights, spread, nearest)
    return Stored(form, codes, group, scales if group else None), operands, steps


def trained_steps(weights: Floats, form: WeightFormat) -> Floats | None:
    """Return the largest scale of each output, [n], with which all its weights are exact, or None.

    Each weight [n, k] is then an integer of the format times the scale. The result is None if an
    output has no such scale, ``form.fraction`` is not 0, or the format has more than
    :data:`TRAINED` values.
    """
    if form.fraction or len(form.values) > TRAINED:
        return None
    low, high = min(form.values), max(form.values)
    largest = np.abs(weights).max(axis=1)
    largest[largest == 0] = 1.0
    steps = np.zeros(len(weights))
    for code in range(1, max(high, -low) + 1):
        left = np.flatnonzero(steps == 0)
        exact = weights[left] * (code / largest[left])[:, None]
        near = np.abs(exact - np.clip(np.rint(exact), low, high)).max(axis=1) < _WHOLE
        steps[left[near]] = largest[left[near]] / code
    return steps if steps.all() else None


def factors_of(form: WeightFormat) -> Ints:
    """Return the integer scales, in ascending order, that a group of weights in a format can have.

    A scale is an integer from 1 to 255. A scale is allowed if ``value * scale / 2**form.fraction``
    is in the range of INT8 for each value in ``form.values``.
    """
    half = 1 << (OPERAND_BITS - 1)
    low, high = min(form.values), max(form.values)
    most = min(-half / low, (half - 1) / high) * (1 << form.fraction)
    return np.arange(1, min(255, int(most)) + 1)


def error_spread(inputs: Floats, k: int) -> Floats:
    """Return an upper triangular matrix [k, k] that spreads rounding errors over later weights.

    ``inputs`` are samples [count, k] of the layer's inputs. If rounding changes input i's weight by
    ``error``, input j's weight changes by ``error * matrix[i, j] / matrix[i, i]``.
    """
    square = inputs.T @ inputs / len(inputs)
    mean = float(np.trace(square)) / k or 1.0
    inverse = np.linalg.inv(square + DAMPING * mean * np.eye(k))
    return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2).T)


def round_compensated(
    exact: Floats, inner: Floats | None, pick: Callable[[Floats, int], Floats]
) -> Floats:
    """Return a layer's weights rounded one input after another, [k, n], with errors compensated.

    ``pick(weights, i)`` returns the rounded weights [n] of input i; its argument [n, k] includes
    the compensation for earlier errors. ``inner`` is the result of :func:`error_spread`, or None if
    errors are not compensated.
    """
    rest, rounded = exact.copy(), np.zeros(exact.shape[::-1])
    for row in range(len(rounded)):
        rounded[row] = pick(rest, row)
        if inner is not None:
            error = rest[:, row] - rounded[row]
            rest[:, row:] -= np.outer(error / inner[row, row], inner[row, row:])
    return rounded


def _nearest(exact: Floats, table: Ints) -> Ints:
    """Return the entries of an ascending table that are nearest."""
    return np.asarray(table[np.searchsorted((table[1:] + table[:-1]) / 2, exact)])


def _best_tables(exact: Floats, tables: Ints) -> Ints:
    """Return the table of each output [n] with the least squared error of a group, [n, group]."""
    losses = [np.sum((_nearest(exact, np.sort(levels)) - exact) ** 2, axis=1) for levels in tables]
    return np.asarray(np.argmin(losses, axis=0))
