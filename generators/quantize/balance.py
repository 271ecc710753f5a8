"""Steps that lose less: one for each column if columns differ, ranges fit for a table."""

import numpy as np

from celosia.arch.functions import Function
from celosia.generators.frontend.weights import Floats
from celosia.generators.quantize.calibrate import Range

GRID = 4096
"""Number of intervals at whose ends a function is evaluated."""
TAIL = 0.25
"""Most that a function may change, in its output's steps, over inputs that are treated as one."""


def column_gains(largest: Floats, strength: float) -> Floats:
    """Return the step of each column relative to one step for all, [n].

    ``largest`` is each column's largest magnitude, [n]. Steps are proportional to its power of
    ``strength``: 0 makes all equal, 1 lets every column fill its range. They are as small as
    possible so that every column fits. A linear layer multiplies the rows of its weights by the
    gains, after Xiao et al. 2023, "SmoothQuant", whose split between inputs and weights is by 0.5.
    """
    known = largest > 0
    if not known.any():
        return np.ones_like(largest)
    # A column that calibration never saw gets the step of the average one.
    middle = np.exp(np.log(largest[known]).mean())
    gains = np.where(known, largest, middle) ** strength
    return np.asarray(gains * ((largest / gains).max() / largest.max()))


def useful_range(function: Function, bounds: Range, step: float) -> Range:
    """Return the part of a range outside which a function changes by less than a share of a step.

    Inputs outside it are replaced by the nearest inside, so that the result is at most TAIL steps
    off.
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
