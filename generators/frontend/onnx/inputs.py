"""Inputs of an ONNX graph: kinds, shapes, and arrays for a given number of valid tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.explain import unsupported_parts
from celosia.generators.frontend.onnx.file import onnx_library
from celosia.generators.frontend.onnx.node import Array


class OpenLengthError(InputError):
    """Raised if neither the graph nor the caller fixes the number of tokens."""


MASKS = ("mask", "padding", "length")
"""Kinds of inputs that give the number of valid tokens."""


@dataclass(frozen=True)
class GraphInput:
    """An input of a graph: its name, its shape, its kind (such as a mask) and its element type."""

    name: str
    shape: tuple[int, ...]
    """Shape with a batch of 1."""
    kind: str
    """``data``, ``tokens``, ``mask``, ``padding`` (its contrary), ``length`` (number of tokens),
    ``types`` (all 0), ``places`` (0, 1, 2, ...), ``past`` (keys and values of earlier tokens,
    always none) or ``other``."""
    dtype: Any
    """NumPy's name of the elements."""

    @property
    def masks(self) -> bool:
        """True if this input of the graph marks the valid tokens."""
        return self.kind in MASKS

    @property
    def count(self) -> int:
        """Number of tokens of an input that has one element for each token, such as a mask.

        For other inputs the number has no meaning.
        """
        return max(self.shape)

    def array_for(self, length: int) -> Array:
        """Return this input's array for ``length`` valid tokens in the graph's first input.

        The input's kind determines the array:

        - ``mask``: 1 for each valid token, 0 for padding.
        - ``padding``: 0 for each valid token, 1 for padding.
        - ``length``: the number of valid tokens.
        - ``places``: the positions 0, 1, 2 and so on.
        - Any other kind: zeros.
        """
        if self.kind in ("past", "other"):
            return np.zeros(self.shape, self.dtype)
        if self.kind == "length":
            return np.full(self.shape, length, self.dtype)
        numbers = np.zeros(self.count, np.int64)
        if self.kind == "mask":
            numbers[:length] = 1
        elif self.kind == "padding":
            numbers[length:] = 1
        elif self.kind == "places":
            numbers = np.arange(self.count)
        return numbers.reshape(self.shape).astype(self.dtype)


def is_auxiliary_name(name: str) -> bool:
    """Return whether an input's name is that of a mask, of token types or of positions."""
    return any(word in name.lower() for word in ("mask", "type", "segment", "position"))


def is_integer(value: Any) -> bool:
    """Return whether an input's elements are integers of 32 or 64 bits, or truth values."""
    return value.type.tensor_type.elem_type in (6, 7, 9)


def sizes_of(value: Any, path: Path) -> list[int]:
    """Return a list of the sizes of an input's axes; 0 stands for a size that is not fixed.

    Raises :class:`InputError` if the input is no tensor, or a size is negative.
    """
    subject = f"Input {value.name} in {path}"
    if not value.type.HasField("tensor_type"):
        kind = str(value.type.WhichOneof("value")).removesuffix("_type").replace("_", " ")
        raise InputError(f"{subject} is no tensor but a {kind}; export a model that takes tensors")
    sizes = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
    if any(size < 0 for size in sizes):
        raise InputError(f"{subject} has the size {min(sizes)}; export the model with another one")
    return sizes


@dataclass(frozen=True)
class InputReader:
    """Finds the shape of each input of a graph, and its kind: token numbers, a mask, and so on.

    ``path`` is the graph's file, used only in error messages. ``model`` is the ONNX model in this
    file. If ``batched`` is true, the first axis of each input is the batch; otherwise the inputs
    have no batch axis.
    """

    path: Path
    model: Any
    batched: bool

    def graph_input(self, value: Any, shape: list[int], tokens: int, *, first: bool) -> GraphInput:
        """Return a :class:`GraphInput`: the name, shape, kind and element type of a graph's input.

        ``value`` is the input in the ONNX model. ``shape`` has the input's sizes, 0 for an open
        size. ``tokens`` replaces an open number of tokens. Raises :class:`OpenLengthError` if
        ``tokens`` is needed but 0, and :class:`InputError` if the input is not supported or has
        another number of tokens.
        """
        name, kind = value.name, value.type.tensor_type.elem_type
        integer = is_integer(value)
        rank, subject = len(shape), f"Input {name} in {self.path}"
        try:
            dtype = onnx_library("onnx.helper").tensor_dtype_to_np_dtype(kind)
        except KeyError as error:
            raise InputError(
                f"{subject} has elements of the unknown type {kind}; export the model again"
            ) from error
        meaning = self._kind(name, shape, integer, first)
        if meaning == "past":
            return GraphInput(name, (shape[0] or 1, *shape[1:]), meaning, dtype)
        if meaning in ("other", "length"):
            sizes = [size or tokens or 1 for size in shape]
            sizes[: self.batched] = [1][:rank]
            return GraphInput(name, tuple(sizes), meaning, dtype)
        transposed = self.batched and rank in (2, 3) and shape[0] > 1 and shape[1] == 1
        shape = list(shape)
        if not transposed and rank and self.batched:
            shape[0] = 1
        axis = 1 if self.batched and not transposed else 0
        least = 1 + self.batched
        if (rank != least if integer else rank < least) or (rank == 3 and not shape[2]):
            raise InputError(
                f"{subject} must be [batch, tokens, features], [batch, channels, height, width] or "
                f"integers [batch, tokens], not of {rank} axes"
            )
        if rank > 3 and not all(shape):
            raise InputError(f"{subject} has no fixed size; export the model with one")
        if rank < 4 and not shape[axis] and not tokens:
            more = "".join(f"; and {thing}" for thing in unsupported_parts(self.model))
            raise OpenLengthError(
                f"{subject} has no fixed number of tokens; give it with --context{more}"
            )
        if rank < 4 and shape[axis] and tokens and shape[axis] != tokens:
            raise InputError(f"{subject} has {shape[axis]} tokens, not {tokens}")
        shape[axis] = shape[axis] or tokens
        return GraphInput(name, tuple(shape), meaning, dtype)

    def _kind(self, name: str, shape: list[int], integer: bool, first: bool) -> str:
        """Return the meaning of an input, by its place and its name."""
        if first:
            return "tokens" if integer else "data"
        lower = name.lower()
        if "past" in lower and not integer and not all(shape[1:]):
            return "past"
        if integer and "len" in lower and all(size <= 1 for size in shape[self.batched :]):
            return "length"
        if len(shape) != 1 + self.batched or "decoder" in lower:
            return "other"
        for word, kind in (("type", "types"), ("segment", "types"), ("position", "places")):
            if word in lower and integer:
                return kind
        others = len(self.model.graph.input)
        if "mask" not in lower and (others != 2 or not integer):
            return "other"
        return "padding" if "pad" in lower else "mask"
