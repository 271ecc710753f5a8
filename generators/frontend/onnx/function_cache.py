"""Recognition of elementwise functions in ONNX graphs, such as GELU.

A graph may compute such a function by several nodes. The functions of these nodes are composed, and
the composed function is compared with the supported activations, and with multiplication by a
constant.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from celosia.arch.functions import FUNCTIONS
from celosia.generators.frontend.base_description import ACTIVATIONS
from celosia.generators.frontend.onnx.values import (
    SAMPLES,
    Activation,
    Affine,
    Linear,
    Lookup,
    Norm,
    Shift,
    Tensor,
    UnsupportedError,
    View,
)
from celosia.generators.reference.floats import FUNCTION_NAMES

_TOLERANCE = 2e-5 * np.maximum(1.0, np.abs(SAMPLES) / 9)
"""Tolerance by which a function is recognized; constants are often float32."""


@dataclass
class FunctionCache:
    """Cache of tensors that are elementwise functions of other tensors in an ONNX graph."""

    activations: dict[tuple[int, str], Activation] = field(default_factory=dict)
    scaled: dict[tuple[int, float], Tensor] = field(default_factory=dict)
    padding: int | None = None
    """Number of the padding token, if the graph compares token numbers with it."""
    kept: list[Tensor] = field(default_factory=list)
    """Arguments of the cached functions; references that prevent reuse of their ``id``."""

    def without_function(self, view: View) -> View:
        """Return a view with the same values as ``view``, but without a function of its elements.

        If the function multiplies by a constant, the weights that compute the view's tensor include
        the constant. Any other function becomes an :class:`Activation`. Raises
        :class:`UnsupportedError` if the function is not supported, or no weights can include the
        constant.
        """
        if view.function is None:
            return view
        tensor = view.tensor
        factor = view.factor()
        if factor is not None:
            if factor == 1.0:
                return replace(view, function=None)
            times = id(tensor), factor
            if times not in self.scaled:
                self.scaled[times] = _times(tensor, factor)
                self.kept.append(tensor)
            return View(self.scaled[times], view.places)
        outputs = view.function(SAMPLES)
        for name in FUNCTION_NAMES.values():
            with np.errstate(all="ignore"):
                apart = np.abs(FUNCTIONS[name](SAMPLES) - outputs)
            if np.all(apart <= _TOLERANCE):
                key = id(tensor), name
                if key not in self.activations:
                    self.activations[key] = tensor.into(Activation, tensor.node, function=name)
                    self.kept.append(tensor)
                return View(self.activations[key], view.places)
        raise UnsupportedError(f"its input is a function that is none of {', '.join(ACTIVATIONS)}")


def _times(tensor: Tensor, factor: float) -> Tensor:
    """Return a tensor times a factor; raise :class:`UnsupportedError` if none can include it."""
    if isinstance(tensor, Linear):
        return replace(tensor, weight=factor * tensor.weight, bias=factor * tensor.bias)
    if isinstance(tensor, Norm):
        return replace(tensor, gamma=factor * tensor.gamma, beta=factor * tensor.beta)
    if isinstance(tensor, Lookup):
        return replace(tensor, table=factor * tensor.table)
    if isinstance(tensor, Affine):
        return replace(tensor, gains=factor * tensor.gains, shifts=factor * tensor.shifts)
    if isinstance(tensor, Shift):
        return replace(tensor, source=_times(tensor.source, factor), values=factor * tensor.values)
    raise UnsupportedError(f"it multiplies by {factor:g} a tensor without a linear layer")
