"""Low-rank corrections: two thin matrices that compensate the error of coarse weights.

Weights are approximated by ``coarse + first @ second``. The two terms are fitted in turn for the
least error of the layer's outputs over samples (Zhang et al. 2024, "LQER").
"""

from dataclasses import dataclass

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.formats import WeightFormat
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.stored import Stored
from celosia.generators.quantize.stored import DAMPING, Ints, quantize_weights

ROUNDS = 6
"""Number of times that codes and product are found alternately."""
MOST = 127
"""Largest magnitude of an INT8 of either sign."""

_RESIDUE = 1e-6
"""Size of a thin column that is a residue of rounding, relative to the largest column."""


@dataclass(frozen=True)
class Corrected:
    """A weight matrix as codes of few bits, and the two thin INT8 matrices that correct it."""

    stored: Stored
    weight: Ints
    """Operands of the codes, [k, n]."""
    steps: Floats
    """The real value of a step of each sum, [n]."""
    first: Ints
    """INT8 [k, rank]."""
    factors: Floats
    """Steps of a thin column in one step of its sum, [rank]."""
    second: Ints
    """INT8 [rank, n], in the steps of sums."""


def correct(
    weights: Floats, form: WeightFormat, group: int, inputs: Floats, rank: int, layer: str
) -> Corrected:
    """Return a layer's weights [n, k] quantized to few bits, with a correction of rank ``rank``.

    The correction is a product of two thin matrices. If ``group`` is not 0, each ``group``
    successive weights share a scale. ``inputs`` [count, k] are sample inputs, divided by their
    scales. Raises :class:`InputError` if ``rank`` is not below min(n, k).
    """
    n, k = weights.shape
    if rank >= min(k, n):
        raise InputError(
            f"Rank of a correction must be less than the {min(k, n)} of layer {layer}, not {rank}"
        )
    square = inputs.T @ inputs / len(inputs)
    square += (DAMPING * float(np.trace(square)) / k or 1.0) * np.eye(k)
    root = np.linalg.cholesky(square).T  # [k, k], root.T @ root == square
    product, best = np.zeros((k, n)), np.inf
    empty = ~weights.any(axis=1)
    for _ in range(ROUNDS):
        stored, weight, steps = quantize_weights(weights - product.T, form, group, inputs)
        lost = weights.T - weight * steps  # [k, n]
        left, sizes, right = np.linalg.svd(root @ lost, full_matrices=False)
        rest = float(np.sum(sizes[rank:] ** 2))
        first = np.linalg.solve(root, left[:, :rank])  # [k, rank]
        product = first @ (sizes[:rank, None] * right[:rank])
        # A residue of rounding would be divided by a step as small as itself.
        product[:, empty] = 0.0
        if rest < best:
            best, best_parts = rest, (stored, weight, steps, first, lost)
    return _in_integers(*best_parts, inputs)


def _in_integers(
    stored: Stored, weight: Ints, steps: Floats, first: Floats, lost: Floats, inputs: Floats
) -> Corrected:
    """Return thin matrices in INT8, the second one fitted to the results of the first."""
    scales = np.abs(first).max(axis=0) / MOST  # [rank]
    rounded = np.rint(first / scales).astype(np.int64)
    thin, wanted = inputs @ (rounded * scales), inputs @ lost / steps
    square = thin.T @ thin + 1e-9 * (float(np.sum(thin**2)) or 1.0) * np.eye(len(scales))
    second = np.linalg.solve(square, thin.T @ wanted)  # [rank, n]
    # The step with which thin columns and second weights are equally coarse, if both fit.
    spread, other = (
        np.sqrt(np.mean(part**2, axis=axis)) for part, axis in ((thin, 0), (second, 1))
    )
    reached = np.abs(thin).max(axis=0)
    largest = np.maximum(np.abs(second).max(axis=1), 1e-12)
    thin_steps = np.sqrt(spread / np.maximum(other, 1e-12))
    thin_steps = np.maximum(np.minimum(thin_steps, MOST / largest), reached / MOST)
    # Inputs that are 0 in all samples leave a thin column no more than a residue of rounding.
    thin_steps = np.where(reached > _RESIDUE * reached.max(), thin_steps, scales)
    integers = np.clip(np.rint(thin / thin_steps), -MOST - 1, MOST)
    square = integers.T @ integers + 1e-9 * max(float(np.sum(integers**2)), 1.0) * np.eye(
        len(scales)
    )
    fitted = np.linalg.solve(square, integers.T @ wanted)
    clipped = np.clip(np.rint(fitted), -MOST, MOST).astype(np.int64)
    return Corrected(stored, weight, steps, rounded, scales / thin_steps, clipped)
