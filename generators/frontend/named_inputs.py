"""Named inputs, for models that have more than one input."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.host_steps import Array

Values = Array | Mapping[str, Array]
"""One input of a model, or the arrays by name for a model that has several."""


@dataclass(frozen=True)
class OtherInput:
    """An input of a model other than the first input.

    Only host steps use it: functions that the host applies before or after the machine runs.
    """

    name: str
    shape: tuple[int, ...]
    """Shape without the batch."""
    below: int
    """Random integers are drawn below this number; 0 for an input of floats."""

    def random(self, rng: np.random.Generator) -> Array:
        """Return a random array of this input's shape.

        An integer input gets integers from 0 to ``below - 1``, all equally likely. An input of
        floats gets normally distributed numbers with mean 0 and variance 1.
        """
        if self.below:
            return np.asarray(rng.integers(0, self.below, self.shape))
        return np.asarray(rng.normal(0, 1, self.shape))

    def check(self, values: Array) -> None:
        """Check the shape and type of an array for this input.

        Raises :class:`InputError` if the array does not have the input's shape, or if the input
        takes integers and the array contains floats.
        """
        if values.shape != self.shape:
            raise InputError(
                f"Input {self.name} must have the shape {list(self.shape)}, not "
                f"{list(values.shape)}"
            )
        if self.below and values.dtype.kind not in "iub":
            raise InputError(f"Input {self.name} must be integers, not {values.dtype}")


@dataclass(frozen=True)
class NamedInputs:
    """Names, shapes and checks of all inputs of a model with several inputs."""

    first: str = "input"
    """The input of the part that runs on the machine."""
    others: tuple[OtherInput, ...] = ()
    """The other inputs, which each sample must have as well."""
    masks: tuple[tuple[str, str], ...] = ()
    """Name and kind (``mask``, ``padding``, ``length``) of the inputs that give a sample's number
    of tokens; without them all tokens of ``first`` are valid."""

    @property
    def shapes(self) -> dict[str, list[int]]:
        """Dictionary from the name of each input, except the first, to its shape (a list).

        The shapes do not include the batch axis.
        """
        return {other.name: list(other.shape) for other in self.others}

    def split_sample(self, model: str, values: Values) -> tuple[Array, dict[str, Array]]:
        """Return a sample's first input, and its other inputs as a dictionary from name to array.

        ``values`` is the sample: a dictionary of arrays, or one array if the model has one input. A
        mask is not returned; instead, the first input is cut to its valid tokens. ``model`` is the
        model's name in messages. Raises :class:`InputError` if an input does not fit the model.
        """
        names = [self.first, *(other.name for other in self.others)]
        listed = ", ".join(names)
        if not isinstance(values, Mapping):
            if self.others:
                raise InputError(
                    f"Model {model} takes arrays of {listed} by name, as numpy.savez writes them, "
                    "not one array"
                )
            return as_array(model, values), {}
        arrays = {name: as_array(model, array) for name, array in values.items()}
        kinds = dict(self.masks)
        wrong = sorted(arrays.keys() - kinds.keys() ^ {*names})
        if wrong:
            verb = "has no input" if wrong[0] in arrays else "needs the input"
            more = f" and may have {', '.join(kinds)}" if kinds else ""
            raise InputError(f"Model {model} {verb} {wrong[0]!r}; it takes {listed}{more}")
        first = arrays[self.first]
        for name, kind in self.masks:
            if name in arrays:
                first = first[: _length(name, kind, arrays[name], len(first))]
        for other in self.others:
            other.check(arrays[other.name])
        return first, {other.name: arrays[other.name] for other in self.others}

    def random(self, first: Array, rng: np.random.Generator) -> Values:
        """Return a sample with the first input ``first``, and random arrays for the other inputs.

        The sample is a dictionary from input names to arrays, or only ``first`` if there are no
        other inputs.
        """
        if not self.others:
            return first
        return {self.first: first} | {other.name: other.random(rng) for other in self.others}


def as_array(model: str, values: object) -> Array:
    """Return an input of the model named ``model`` as an array of real numbers.

    Raises :class:`InputError` if the input is no such array, or if NumPy (``numpy.ma``) masks some
    of its numbers.
    """
    try:
        array = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"An input of model {model} is no array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"Inputs of model {model} must be real numbers, not {array.dtype}")
    if type(values) is not np.ndarray and np.ma.is_masked(np.ma.asarray(values)):
        raise InputError(
            f"An input of model {model} has masked numbers, which would be used as numbers; "
            "replace them, as inputs.filled(0) does"
        )
    return array


def _length(name: str, kind: str, values: Array, most: int) -> int:
    """Return the number of tokens that a mask or a length states."""
    if kind == "length":
        length = int(values.item()) if values.size == 1 and values.dtype.kind in "iu" else -1
        wanted = f"one integer from 1 to {most}"
    else:
        present = (values == 0) if kind == "padding" else (values != 0)
        length = int(np.count_nonzero(present))
        ones, zeros = (0, 1) if kind == "padding" else (1, 0)
        wanted = f"{ones} for each of the {most} tokens that is there, and {zeros} behind the last"
        exact = bool(np.all((values == 0) | (values == 1)))
        if values.shape != (most,) or not exact or not present[:length].all():
            length = -1
    if not 1 <= length <= most:
        raise InputError(f"Input {name} must be {wanted}, not {values.tolist()}")
    return length
