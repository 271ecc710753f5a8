"""An ONNX graph: its inputs and nodes, and methods that run parts of the graph."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.batch import single
from celosia.generators.frontend.onnx.engine import (
    IR_VERSION,
    MOST_NUMBERS,
    RunError,
    Runner,
    inferred,
)
from celosia.generators.frontend.onnx.file import file_and_output, onnx_library, subgraphs
from celosia.generators.frontend.onnx.function_cache import FunctionCache
from celosia.generators.frontend.onnx.inputs import (
    MASKS,
    GraphInput,
    InputReader,
    is_auxiliary_name,
    is_integer,
    sizes_of,
)
from celosia.generators.frontend.onnx.node import Array
from celosia.generators.frontend.weights import Floats

TOLERANCE = 1e-3
"""Tolerance of an imported model against the graph, relative to the largest output."""
_LEAST = 1e-3
"""The largest output below which the tolerance falls no more, for sums that cancel in float32."""
_SEED = 1
_FEW = 100
"""Token numbers that surely exist, as far as a table is visible."""


def _reads(node: Any) -> set[str]:
    """Return the names of all values that a node reads, including those of the graphs in it."""
    names = set(node.input)
    for inner in subgraphs(node):
        made = {value.name for value in (*inner.input, *inner.initializer)}
        for inner_node in inner.node:
            names |= _reads(inner_node) - made
            made |= set(inner_node.output)
        names |= {value.name for value in inner.output} - made
    return names - {""}


class Graph:
    """An ONNX graph, changed to a batch of 1, with methods that run its nodes.

    ``path`` may end in the name of the output to import, as in ``model.onnx:scores``. ``tokens`` is
    the number of tokens, or 0 if the graph fixes it. If ``batched`` is true, inputs begin with a
    batch axis.
    """

    def __init__(self, path: Path, model: Any, tokens: int, *, batched: bool = True):
        """Store a file's model; raise :class:`InputError` if its inputs do not fit.

        ``batched`` means that the first axis of every input is the batch.
        """
        self.path, self.batched = path, batched
        self.file, self._asked = file_and_output(path)
        self.model = model
        self._numpy, self._helper = onnx_library("onnx.numpy_helper"), onnx_library("onnx.helper")
        self.inputs = self._inputs(tokens)
        graph = self.model.graph
        self.known: dict[str, Any] = {
            tensor.name: self._numpy.to_array(tensor) for tensor in graph.initializer
        }
        self.output = graph.output[self._answer()].name
        self.cache = FunctionCache()
        self.opset = max(
            (opset.version for opset in self.model.opset_import if opset.domain in ("", "ai.onnx")),
            default=1,
        )
        self._inferred = inferred(self.model)
        self._check_sizes()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._whole: Runner | None = None
        self.blocks: Any = None
        """The blocks that were found in the graph, with its values, or why there are none."""
        self.names: dict[int, str] = {}
        """The name of the value that is a whole tensor, by the tensor's identity."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Texts that name the constant tensors and the outputs of the graph that are not imported.

        The text for a tensor is its name. The text for an output includes a path that imports the
        output, such as ``model.onnx:scores``. The path is left out if the output is a copy of an
        input.
        """
        used, same = self.used_values, self._handed_on()
        others = [
            f"output {name}"
            if name in same
            else f"output {name}; {self.file.name}:{name} asks for it"
            for name in (value.name for value in self.model.graph.output)
            if name != self.output
        ]
        return (*(name for name in self.known if name not in used), *others)

    def _handed_on(self) -> set[str]:
        """Return the names of the inputs, and of the values that are inputs unchanged."""
        aliases = {graph_input.name for graph_input in self.inputs}
        for node in self.model.graph.node:
            if node.op_type in ("Identity", "Cast") and node.input[0] in aliases:
                aliases |= set(node.output)
        return aliases

    def _answer(self) -> int:
        """Return the number of the first output that is not an input handed on.

        It is 0 if an output was asked for.
        """
        if self._asked:
            return 0
        same, outputs = self._handed_on(), enumerate(self.model.graph.output)
        return next((number for number, output in outputs if output.name not in same), 0)

    def _check_sizes(self) -> None:
        for name, (_, shape) in self._inferred.items():
            if shape is not None and math.prod(shape) > MOST_NUMBERS:
                raise InputError(
                    f"Value {name} in {self.path} has {math.prod(shape)} numbers, of at most "
                    f"{MOST_NUMBERS}"
                )

    def _inputs(self, tokens: int) -> list[GraphInput]:
        graph = self.model.graph
        known = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in known]
        if not inputs:
            raise InputError(f"Model {self.path} has no input")
        if is_integer(inputs[0]):
            inputs.sort(key=lambda value: is_auxiliary_name(value.name))
        sizes = [sizes_of(value, self.path) for value in inputs]
        self.batch = max(sizes[0][0], 1) if len(sizes[0]) > 1 and self.batched else 1
        if len(sizes[0]) in (2, 3) and self.batch > 1 and sizes[0][1] == 1:
            self.batch = 1
        self.whole = self.model
        if self.batch > 1:
            self.model = single(self.model, self.batch)
        reader = InputReader(self.path, self.model, self.batched)
        graph_inputs: list[GraphInput] = []
        for value, shape in zip(inputs, sizes, strict=True):
            graph_inputs.append(reader.graph_input(value, shape, tokens, first=not graph_inputs))
        named = {value.name: value for value in self.model.graph.input}
        for graph_input in graph_inputs:
            axes = named[graph_input.name].type.tensor_type.shape.dim
            for size, axis in zip(graph_input.shape, axes, strict=True):
                axis.dim_value = size
        return graph_inputs

    def constants(self) -> list[Array]:
        """Return the tensors in the graph's ``Constant`` nodes, in the order of the nodes."""
        return [
            self._numpy.to_array(node.attribute[0].t)
            for node in self.model.graph.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"
        ]

    @property
    def used_values(self) -> set[str]:
        """Names of all values of the graph that the selected output depends on."""
        return {name for node in self.needed({self.output}, set()) for name in _reads(node)}

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample of the graph's first input, without the batch axis."""
        shape = self.inputs[0].shape
        if not self.batched:
            return shape
        transposed = len(shape) in (2, 3) and shape[0] > 1
        return (shape[0], *shape[2:]) if transposed else shape[1:]

    @property
    def others(self) -> list[GraphInput]:
        """Inputs of the graph that the selected output depends on, except the first input.

        Inputs whose contents follow from the first input, such as a mask, are not included.
        """
        return [
            graph_input
            for graph_input in self.inputs
            if graph_input.kind == "other" and graph_input.name in self.used_values
        ]

    @property
    def tokens(self) -> int:
        """Number of tokens of the first input."""
        first = self.inputs[0]
        return (
            first.count
            if first.kind == "tokens" or len(self.sample_shape) == 1
            else self.sample_shape[0]
        )

    def without_masks(self, kinds: Sequence[str] = MASKS) -> bool:
        """Change mask inputs of the graph to ordinary inputs; return whether any has changed.

        The caller must then supply the array of a changed input. Without the change, :meth:`feeds`
        computes the array from the number of valid tokens. ``kinds`` lists the kinds of inputs to
        change, by default all kinds of masks.
        """
        any_masks = any(graph_input.kind in kinds for graph_input in self.inputs)
        self.inputs = [replace(p, kind="other") if p.kind in kinds else p for p in self.inputs]
        self.blocks = None
        return any_masks

    def feeds(
        self, values: Array, length: int, others: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Return the arrays of all inputs of the graph: a dictionary from input name to array.

        ``values`` is the first input, to which padding is appended if it is too short. ``others``
        is a dictionary of other inputs. Arrays that ``others`` lacks, such as masks, are computed
        from the number ``length`` of valid tokens.
        """
        first = self.inputs[0]
        numbers = np.asarray(values)
        if numbers.size < math.prod(first.shape):
            fill = self.cache.padding or 0 if first.kind == "tokens" else 0
            numbers = np.append(numbers, np.full(math.prod(first.shape) - numbers.size, fill))
        arrays = {first.name: numbers.reshape(first.shape).astype(first.dtype)}
        for graph_input in self.inputs[1:]:
            own = (others or {}).get(graph_input.name)
            array = (
                graph_input.array_for(length) if own is None else np.reshape(own, graph_input.shape)
            )
            arrays[graph_input.name] = np.asarray(array, graph_input.dtype)
        return arrays

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value by the value's name.

        Raises :class:`InputError` if the graph cannot be run.
        """
        known = self._inferred.get(name, (0, None))[1]
        if known is not None:
            return known
        if not self._shapes:
            self._shapes = self._seen_shapes()
        return self._shapes.get(name, ())

    def _seen_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all values that are not known otherwise, by running the graph."""
        made = [
            output for node in self.needed({self.output}, set()) for output in node.output if output
        ]
        wanted = [name for name in made if self._inferred.get(name, (0, None))[1] is None]
        feeds = self.feeds(self.random(), self.tokens)
        arrays = self.run_part(self.subgraph_runner(wanted, []), feeds)
        return {name: value.shape for name, value in zip(wanted, arrays, strict=True)}

    def run_part(self, runner: Runner, feeds: dict[str, Array]) -> list[Array]:
        """Run ``runner``, a part of the graph, and return a list of its output arrays.

        ``feeds`` is a dictionary from input names to arrays. Raises :class:`InputError` if the part
        cannot be run.
        """
        try:
            return runner.run(feeds)
        except RunError as error:
            raise InputError(f"Model {self.path} cannot be run: {error}") from error

    def random(self) -> Array:
        """Return an array with random contents for the graph's first input, in the input's shape.

        The elements are normally distributed or, if the input contains token numbers, small token
        numbers. Each call returns the same array.
        """
        rng, first = np.random.default_rng(_SEED), self.inputs[0]
        if first.kind != "tokens":
            return rng.normal(0, 1, first.shape).astype(first.dtype)
        tables = [v for v in self.known.values() if v.ndim == 2 and v.dtype.kind == "f"]
        most = min([_FEW, *(len(table) for table in tables)])
        return rng.integers(0, max(most, 1), first.shape).astype(first.dtype)

    def needed(self, wanted: set[str], provided: set[str]) -> list[Any]:
        """Return a list of the nodes that compute the values ``wanted``, in the graph's order.

        ``wanted`` and ``provided`` are sets of names of values. The values in ``provided`` are
        already known, so nodes that are needed only to compute them are omitted.
        """
        wanted, nodes = set(wanted) - provided, []
        for node in reversed(self.model.graph.node):
            if wanted & set(node.output):
                nodes.append(node)
                wanted |= _reads(node) - provided
        return nodes[::-1]

    def subgraph_runner(self, outputs: Sequence[str], sources: Sequence[str]) -> Runner:
        """Return a :class:`Runner` that computes some values of the graph from other values.

        The runner takes the values named in ``sources``, and all graph inputs that are needed. It
        returns the values named in ``outputs``. Raises :class:`InputError` if the nodes that
        compute the outputs cannot be run.
        """
        nodes = self.needed(set(outputs), set(sources))
        used = {name for node in nodes for name in _reads(node)}
        inputs = [self._info(name) for name in sources]
        inputs += [
            self._info(graph_input.name)
            for graph_input in self.inputs
            if graph_input.name in used and graph_input.name not in sources
        ]
        outs = [self._helper.make_empty_tensor_value_info(name) for name in outputs]
        tensors = [tensor for tensor in self.model.graph.initializer if tensor.name in used]
        graph = self._helper.make_graph(nodes, "part", inputs, outs, tensors)
        return self._runner(
            self._helper.make_model(
                graph, opset_imports=self.model.opset_import, ir_version=IR_VERSION
            )
        )

    def _runner(self, model: Any) -> Runner:
        try:
            return Runner(model)
        except RunError as error:
            raise InputError(f"Model {self.path} cannot be run: {error}") from error

    def _info(self, name: str) -> Any:
        return self._helper.make_tensor_value_info(name, self._inferred[name][0], None)

    def dtype(self, name: str) -> Any:
        """Return the NumPy dtype of the elements of the value named ``name``."""
        return self._helper.tensor_dtype_to_np_dtype(self._inferred[name][0])

    def run(self, values: Array, length: int, others: Mapping[str, Array] | None = None) -> Floats:
        """Run the whole graph on one sample, and return one of its outputs in float64.

        The output is the one named in the graph's path or, without a name, the first that is no
        copy of an input. If inputs have a batch axis, the output has a batch of 1. The arguments
        are those of :meth:`feeds`. Raises :class:`InputError` if the graph cannot be run.
        """
        feeds = self.feeds(values, length, others)
        if self.batch > 1:
            feeds = {name: np.repeat(array, self.batch, axis=0) for name, array in feeds.items()}
        if self._whole is None:
            self._whole = self._runner(self.whole)
        arrays = self.run_part(self._whole, feeds)
        first = np.asarray(arrays[self._answer()], np.float64)
        return first[:1] if self.batch > 1 else first

    def check(self, subject: str, outputs: Floats, expected: Floats) -> None:
        """Raise :class:`InputError` if the imported model's ``outputs`` differ from the graph's.

        ``expected`` are the graph's outputs, of the same shape. Elements may differ by 0.001 times
        the largest magnitude in ``expected``, or by 1e-6 if that is more. ``subject`` names the
        outputs in the message.
        """
        alike = outputs.shape == expected.shape
        worst = float(np.abs(outputs - expected).max()) if alike else math.inf
        if not worst <= TOLERANCE * max(float(np.abs(expected).max()), _LEAST):
            raise InputError(
                f"Model {self.path} differs from the meaning of its nodes: {subject} differ by "
                f"{worst:.3g}"
            )
