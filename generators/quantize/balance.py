"""Reduces quantization errors of tensors and of the inputs of activation functions.

Columns of a tensor get separate scales, so that small columns use more of the integer range. The
input range of an activation function is narrowed to the range in which its output changes.
"""

import numpy as np

from celosia.arch.functions import Function
from celosia.generators.frontend.weights import Floats
from celosia.generators.quantize.calibrate import Range

GRID = 4096
"""Number of intervals at whose ends a function is evaluated."""
TAIL = 0.25
"""Most that a function may change, in its output's steps, over inputs that are treated as one."""


def column_gains(largest: Floats, strength: float) -> Floats:
    """Return the scale of each column of a tensor relative to the tensor's scale, [n].

    ``largest`` [n] has the largest magnitude of each column. A column's scale is proportional to
    ``largest ** strength``, as in SmoothQuant (Xiao et al. 2023). With ``strength`` 0, all scales
    are equal; with 1, each column fills the integer range.
    """
    known = largest > 0
    if not known.any():
        return np.ones_like(largest)
    # A column that calibration never saw gets the step of the average one.
    middle = np.exp(np.log(largest[known]).mean())
    gains = np.where(known, largest, middle) ** strength
    return np.asarray(gains * ((largest / gains).max() / largest.max()))


def useful_range(function: Function, bounds: Range, step: float) -> Range:
    """Return an activation function's input range without ends where its output hardly changes.

    The caller clamps inputs to the returned range. The clamping changes the output by at most
    :data:`TAIL` times ``step``, the scale of the output.
    """
    x = np.linspace(bounds.low, bounds.high, GRID + 1)
    y = function(x)

    def flat(values: Floats) -> int:
        """Return the last place up to which values are all within TAIL steps."""
        span = np.maximum.accumulate(values) - np.minimum.accumulate(values)
        return int(np.searchsorted(span, TAIL * step, side="right")) - 1

    first, last = flat(y), GRID - flat(y[::-1])
    if first >= last:
        return bounds
    return Range(float(x[first]), float(x[last]))
