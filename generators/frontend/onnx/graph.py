"""An ONNX file: its inputs, its nodes, and what ONNX's own implementation makes of parts of it."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.files import reading
from arch.packages import library
from generators.frontend.onnx.batch import single
from generators.frontend.onnx.node import Array, Node
from generators.frontend.onnx.nodes import evaluate
from generators.frontend.onnx.values import (
    Input,
    Made,
    Mask,
    Opaque,
    UnsupportedError,
    Value,
    View,
)

_SEED = 1
_FEW = 100
"""Token numbers that are surely there, as far as a table can be seen."""


def onnx_library(name: str) -> Any:
    """Return a module of the package ``onnx``; raise :class:`InputError` where it is missing."""
    return library(name, "ONNX files need", "onnx")


@dataclass(frozen=True)
class Place:
    """An input of the graph."""

    name: str
    shape: tuple[int, ...]
    """With a batch of 1."""
    kind: str
    """``data``, ``tokens``, ``mask``, ``types`` (all 0), or ``places`` (0, 1, 2, ...)."""
    dtype: Any
    """NumPy's name of the elements."""

    @property
    def count(self) -> int:
        """Tokens of an input of token numbers or masks."""
        return max(self.shape)

    def given(self, length: int) -> Array:
        """Return what this input is where the first ``length`` tokens are there."""
        numbers = np.zeros(self.count, np.int64)
        if self.kind == "mask":
            numbers[:length] = 1
        elif self.kind == "places":
            numbers = np.arange(self.count)
        return numbers.reshape(self.shape).astype(self.dtype)


def _training(node: Any, model: Any) -> bool:
    """Return whether a node is a dropout that drops."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    named = {tensor.name: tensor for tensor in model.graph.initializer}
    mode = named.get(node.input[2])
    return mode is not None and bool(onnx_library("onnx.numpy_helper").to_array(mode))


class Graph:
    """An ONNX graph with a batch of 1, and what its nodes compute."""

    def __init__(self, path: Path, tokens: int):
        """Read a file; raise :class:`InputError` where it is none, or its inputs do not fit."""
        self.path = path
        onnx = onnx_library("onnx")
        try:
            with reading(path, "ONNX file"):
                self.model = onnx.load(str(path))
            onnx.checker.check_model(self.model)
        except InputError:
            raise
        except Exception as error:
            line = str(error).strip().partition("\n")[0]
            raise InputError(f"File {path} is not an ONNX model: {line}") from error
        if any(_training(node, self.model) for node in self.model.graph.node):
            raise InputError(
                f"Model {path} was exported for training, as its dropout is on; export it again "
                "after model.eval()"
            )
        if self.model.functions:
            self.model = onnx_library("onnx.inliner").inline_local_functions(self.model)
        self._numpy, self._helper = onnx_library("onnx.numpy_helper"), onnx_library("onnx.helper")
        self._reference = onnx_library("onnx.reference")
        self.places = self._places(tokens)
        graph = self.model.graph
        self.known: dict[str, Any] = {
            tensor.name: self._numpy.to_array(tensor) for tensor in graph.initializer
        }
        self.output = graph.output[0].name
        self.made = Made()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.names: dict[int, str] = {}
        """The name of the value that is a whole tensor, by the tensor's identity."""

    def _places(self, tokens: int) -> list[Place]:
        graph = self.model.graph
        known = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in known]
        if not inputs:
            raise InputError(f"Model {self.path} has no input")
        sizes = [[one.dim_value for one in v.type.tensor_type.shape.dim] for v in inputs]
        self.batch = sizes[0][0] if sizes[0] and sizes[0][0] > 1 else 1
        if len(sizes[0]) in (2, 3) and self.batch > 1 and sizes[0][1] == 1:
            self.batch = 1
        self.whole = self.model
        if self.batch > 1:
            self.model = single(self.model, self.batch)
        found: list[Place] = []
        for value, shape in zip(inputs, sizes, strict=True):
            found.append(self._place(value, shape, tokens, first=not found))
        return found

    def _place(self, value: Any, shape: list[int], tokens: int, *, first: bool) -> Place:
        name, kind = value.name, value.type.tensor_type.elem_type
        integer = kind in (6, 7, 9)
        dtype = self._helper_dtype(kind)
        rank, what = len(shape), f"Input {name} in {self.path}"
        transposed = rank in (2, 3) and shape[0] > 1 and shape[1] == 1
        shape = list(shape)
        if not transposed and rank:
            shape[0] = 1
        axis = 0 if transposed else 1
        if rank not in ((2,) if integer else (2, 3, 4)) or (rank == 3 and not shape[2]):
            raise InputError(
                f"{what} must be [batch, tokens, features], [batch, channels, height, width] or "
                f"integers [batch, tokens], not of {rank} axes"
            )
        if rank == 4 and not all(shape):
            raise InputError(f"{what} has no fixed size; export the model with one")
        if rank < 4 and not shape[axis] and not tokens:
            raise InputError(f"{what} has no fixed number of tokens; give it with --tokens")
        if rank < 4 and shape[axis] and tokens and shape[axis] != tokens:
            raise InputError(f"{what} has {shape[axis]} tokens, not {tokens}")
        shape[axis] = shape[axis] or tokens
        if not first and (rank > 2 or "decoder" in name.lower()):
            raise InputError(
                f"{what} is a second sequence, as of an encoder with a decoder that attends to it; "
                "export the encoder alone"
            )
        return Place(name, tuple(shape), self._kind(name, integer, first), dtype)

    def _helper_dtype(self, kind: int) -> Any:
        return onnx_library("onnx.helper").tensor_dtype_to_np_dtype(kind)

    def _kind(self, name: str, integer: bool, first: bool) -> str:
        """Return what an input is, by its place and its name."""
        if first:
            return "tokens" if integer else "data"
        for word, kind in (("type", "types"), ("segment", "types"), ("position", "places")):
            if word in name.lower() and integer:
                return kind
        others = len(self.model.graph.input)
        if "mask" in name.lower() or others == 2:
            return "mask"
        raise InputError(
            f"Input {name} in {self.path} is not known beside the first; others may be a mask, "
            "token types or positions, with these words in their names"
        )

    def feeds(self, values: Array, length: int) -> dict[str, Array]:
        """Return all inputs for one of the first, [*shape], of which ``length`` tokens are there.

        Token numbers may be fewer: others are filled up with the number that stands for none.
        """
        first = self.places[0]
        given = np.asarray(values)
        if first.kind == "tokens" and given.size < first.count:
            fill = np.full(first.count, self.made.padding or 0)
            fill[: given.size] = given.ravel()
            given = fill
        found = {first.name: given.reshape(first.shape).astype(first.dtype)}
        return found | {place.name: place.given(length) for place in self.places[1:]}

    def follow(self) -> tuple[dict[str, Value], list[str]]:
        """Return what every value of the graph is, and why some nodes are not understood.

        What these compute is :class:`Opaque`.
        """
        first = self.places[0]
        values: dict[str, Value] = dict(self.known)
        values[first.name] = self._input(first)
        for place in self.places[1:]:
            full, cut = place.given(place.count), place.given(place.count - 1)
            values[place.name] = Mask(full, cut) if place.kind == "mask" else full
        self.shapes = self._shapes()
        reasons = []
        for node in self.needed({self.output}, set()):
            given = [values[name] if name else None for name in node.input]
            name = node.name or node.output[0]
            attributes = {a.name: self._helper.get_attribute_value(a) for a in node.attribute}
            outputs: Sequence[Value] = ()
            try:
                step = Node(name, node.op_type, given, attributes, self._fold(node), self.made)
                outputs = evaluate(step)
            except UnsupportedError as error:
                reasons.append(f"node {name} ({node.op_type}): {error}")
            except Exception as error:
                reasons.append(f"node {name} ({node.op_type}): cannot be followed, {error}")
            for number, one in enumerate(node.output):
                if not one:
                    continue
                value = outputs[number] if number < len(outputs) else self._opaque(one)
                if isinstance(value, View) and isinstance(value.tensor, Opaque):
                    value = self._opaque(one)
                values[one] = value
                self._name(one, value)
        return values, reasons

    def _input(self, place: Place) -> View:
        shape = place.shape
        if place.kind == "tokens" or len(shape) == 2:
            rows, columns = place.count, 1
        else:
            rows, columns = int(np.prod(shape[:-1])), shape[-1]
        tensor = Input(node=place.name, rows=rows, columns=columns, tokens=place.kind == "tokens")
        return View(tensor, np.arange(rows * columns).reshape(shape))

    def _opaque(self, name: str) -> Value:
        shape = self.shapes.get(name, ())
        columns = shape[-1] if shape else 1
        size = int(np.prod(shape))
        rows = size // columns if columns else 0
        tensor = Opaque(node=name, rows=rows, columns=columns)
        return View(tensor, np.arange(size).reshape(shape))

    def _name(self, name: str, value: Value) -> None:
        if not isinstance(value, View):
            return
        with contextlib.suppress(UnsupportedError):
            value = self.made.settled(value)
            tensor = value.tensor
            size = tensor.rows * tensor.columns
            if value.index.size == size and np.array_equal(value.index.ravel(), np.arange(size)):
                self.names.setdefault(id(tensor), name)
                self.made.kept.append(tensor)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every value, by running the graph once."""
        evaluator = self._reference.ReferenceEvaluator(self.model)
        feeds = self.feeds(self.random(), self.places[0].count)
        try:
            found = evaluator.run(None, feeds, intermediate=True)
        except Exception as error:
            line = str(error).strip().partition("\n")[0]
            raise InputError(f"Model {self.path} cannot be run: {line}") from error
        return {name: np.shape(value) for name, value in found.items()}

    def random(self) -> Array:
        """Return a random first input."""
        rng, first = np.random.default_rng(_SEED), self.places[0]
        if first.kind != "tokens":
            return rng.normal(0, 1, first.shape).astype(first.dtype)
        tables = [v for v in self.known.values() if v.ndim == 2 and v.dtype.kind == "f"]
        most = min([_FEW, *(len(table) for table in tables)])
        return rng.integers(0, max(most, 1), first.shape).astype(first.dtype)

    def needed(self, wanted: set[str], given: set[str]) -> list[Any]:
        """Return the nodes that values depend on beside what is given, in their order."""
        wanted, found = set(wanted) - given, []
        for node in reversed(self.model.graph.node):
            if wanted & set(node.output):
                found.append(node)
                wanted |= set(node.input) - given
        return found[::-1]

    def part(self, outputs: Sequence[str], given: Sequence[str]) -> Any:
        """Return what computes values from others with ONNX's reference implementation."""
        nodes = self.needed(set(outputs), set(given))
        used = {name for node in nodes for name in node.input}
        inputs = [self._helper.make_empty_tensor_value_info(name) for name in given]
        for place in self.places:
            if place.name in used and place.name not in given:
                inputs.append(self._helper.make_empty_tensor_value_info(place.name))
        outs = [self._helper.make_empty_tensor_value_info(name) for name in outputs]
        tensors = [one for one in self.model.graph.initializer if one.name in used]
        graph = self._helper.make_graph(nodes, "part", inputs, outs, tensors)
        model = self._helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )
        return self._reference.ReferenceEvaluator(model)

    def _fold(self, node: Any) -> Callable[[Sequence[Any]], list[Array]]:
        """Return what computes one node with ONNX's reference implementation."""

        def fold(inputs: Sequence[Any]) -> list[Array]:
            given = {name: value for name, value in zip(node.input, inputs, strict=False) if name}
            info = [
                self._helper.make_tensor_value_info(
                    name, self._helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), None
                )
                for name, value in given.items()
            ]
            outs = [self._helper.make_empty_tensor_value_info(name) for name in node.output]
            graph = self._helper.make_graph([node], "node", info, outs)
            model = self._helper.make_model(graph, opset_imports=self.model.opset_import)
            found = self._reference.ReferenceEvaluator(model).run(None, given)
            return [np.asarray(value) for value in found]

        return fold

    def run(self, values: Array, length: int) -> NDArray[np.float64]:
        """Return the file's own first output, of the first of its batch."""
        feeds = self.feeds(values, length)
        if self.batch > 1:
            feeds = {name: np.repeat(one, self.batch, axis=0) for name, one in feeds.items()}
        found = self._reference.ReferenceEvaluator(self.whole).run([self.output], feeds)
        first = np.asarray(found[0], np.float64)
        return first[:1] if self.batch > 1 else first
