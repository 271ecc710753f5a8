"""Steps of a model that the host computes in floating point, before and after the machine runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.weights import Floats

Array = NDArray[Any]


@dataclass(frozen=True)
class HostStep:
    """A function that the host applies to an array before or after the machine runs.

    Before the run, the first step gets an input of the model. After the run, the first step gets
    the machine's output [rows, columns]. Every further step gets the result of the previous step.
    """

    name: str
    """Name of the part of the model."""
    what: str
    """Function of the step, in a few words."""
    function: Callable[..., Array] = field(repr=False)
    parameters: int = 0
    """Number of trained parameters of the step."""
    products: int = 0
    """Number of products of one inference."""
    beside: bool = False
    """True if the function also takes the arrays of the model's other inputs, by name."""


class Prepared(np.ndarray[Any, np.dtype[Any]]):
    """The machine's input array, which the host computes from a model's inputs before the run.

    Its attribute ``others`` has the arrays of all inputs of the model except the first: a
    dictionary by input name. Host steps (functions on the host) use these arrays after the run.
    """

    others: Mapping[str, Array]
    """Arrays by the name of the input."""


def apply(steps: Sequence[HostStep], values: Array, others: Mapping[str, Array]) -> Array:
    """Apply host steps to an array one after another, and return the result.

    The function of each step gets the result of the previous step. If a step's field ``beside`` is
    true, its function also gets ``others``: a dictionary from the names of the model's other inputs
    to their arrays.
    """
    for step in steps:
        values = step.function(values, others) if step.beside else step.function(values)
    return values


def rearrange(name: str, meaning: str, places: NDArray[np.int64]) -> HostStep:
    """Return a host step (a function on the host) that rearranges an input as [rows, columns].

    ``places`` [rows, columns] has an index for each element of the result: the position of an
    element in the flattened input, or -1 for the value 0. ``meaning`` describes the step in a few
    words.
    """

    def function(values: Array) -> Array:
        flat = np.append(np.asarray(values, np.float64).ravel(), 0.0)
        return flat[places]

    return HostStep(name, meaning, function)


def linear(
    name: str, meaning: str, weight: Floats, bias: Floats | None = None, *, rows: int = 1
) -> HostStep:
    """Return a :class:`HostStep` (function on the host) of a linear layer, ``x @ weight.T + bias``.

    ``weight`` is [outputs, inputs]; ``bias`` is [outputs] or None. ``meaning`` describes the layer
    in a few words. ``rows`` is the number of rows of ``x`` in one inference, used only to count
    multiplications.
    """
    added = 0.0 if bias is None else bias
    parameters = weight.size + (0 if bias is None else bias.size)
    return HostStep(
        name, meaning, lambda x: np.asarray(x @ weight.T + added), parameters, rows * weight.size
    )


def pointwise(name: str, function: Callable[[Floats], Floats]) -> HostStep:
    """Return a host step (a function on the host) that applies a function to every element."""
    return HostStep(name, "of every element", function)


def layer_norm(name: str, gamma: Floats, beta: Floats, epsilon: float) -> HostStep:
    """Return a host step (a function on the host) that applies a LayerNorm to each row."""

    def function(x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(centred * centred, axis=-1, keepdims=True)
        return np.asarray(centred / np.sqrt(variance + epsilon) * gamma + beta)

    return HostStep(name, "LayerNorm of every row", function, gamma.size + beta.size)


def window_indices(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    dilations: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Return the indices of the input elements in each window of a convolution.

    ``shape`` is the shape of the input, channels first. The result is [*windows, channels,
    *kernel]; an element is an index in the flattened input, or -1 for padding. ``before`` and
    ``after`` are the numbers of padding elements on each axis, by default 0.
    """
    axes = len(kernel)
    before, after = (tuple(padding) or (0,) * axes for padding in (before, after))
    dilations = tuple(dilations) or (1,) * axes
    places = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    widths = [(0, 0), *zip(before, after, strict=True)]
    padded = np.pad(places, widths, constant_values=-1)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(
        padded, reach, axis=tuple(range(1, axes + 1))
    )  # [channels, *all places, *reach]
    every = [slice(None), *(slice(None, None, step) for step in (*strides, *dilations))]
    return np.moveaxis(seen[tuple(every)], 0, axes)
