"""ONNX graphs of Transformer encoders, as PyTorch exports them: a description and weights.

The graph is followed node by node (``onnx_nodes``); the tensors that its nodes compute are matched
with the blocks of a description; and the result is run beside the graph, on ONNX's own reference
implementation, before it is given out.
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.description import ModelDescription
from generators.frontend.onnx.match import Encoder, match
from generators.frontend.onnx.node import Array, Node
from generators.frontend.onnx.nodes import evaluate
from generators.frontend.onnx.values import Input, Made, Mask, UnsupportedError, Value, View
from generators.frontend.source import Source
from generators.frontend.weights import Weights, check_weights
from generators.reference.floats import FUNCTION_NAMES, forward

ONNX_SUFFIX = ".onnx"
TOLERANCE = 1e-3
"""How far the imported model may be from the graph, of its largest output."""
_NAMES = {theirs: ours for ours, theirs in FUNCTION_NAMES.items()}


def load_onnx(path: Path, tokens: int = 0) -> Source:
    """Return the encoder in an ONNX file.

    Its first input is [batch, tokens, features], or token numbers [batch, tokens]; a second one,
    where there is one, is the mask of tokens that are there, [batch, tokens]. The batch must be 1
    or of no fixed size. ``tokens`` is the number of tokens where the graph does not fix it. The
    first output is what counts.

    Raises :class:`InputError` where the package ``onnx`` is not installed, the file cannot be read
    or holds what a description cannot say: then every such node is named.
    """
    graph = _Graph(path, tokens)
    encoder = graph.encoder()
    description, weights = _describe(encoder, path.stem, graph)
    _verify(path, graph, description, weights)
    return Source(description, weights)


def _library(name: str) -> Any:
    if importlib.util.find_spec("onnx") is None:
        raise InputError("ONNX files need the package onnx; install it with: pip install onnx")
    return importlib.import_module(name)


@dataclass(frozen=True)
class _Place:
    """An input of the graph."""

    name: str
    shape: tuple[int, ...]
    integer: bool


class _Graph:
    """An ONNX file and what its nodes compute."""

    def __init__(self, path: Path, tokens: int):
        self.path = path
        onnx = _library("onnx")
        try:
            self.model = onnx.load(str(path))
            onnx.checker.check_model(self.model)
        except OSError as error:
            raise InputError(f"Cannot read ONNX file {path}: {error.strerror}") from error
        except Exception as error:
            line = str(error).strip().partition("\n")[0]
            raise InputError(f"File {path} is not an ONNX model: {line}") from error
        self._numpy = _library("onnx.numpy_helper")
        self._helper = _library("onnx.helper")
        self._reference = _library("onnx.reference")
        graph = self.model.graph
        self.known: dict[str, Any] = {
            tensor.name: self._numpy.to_array(tensor) for tensor in graph.initializer
        }
        inputs = [value for value in graph.input if value.name not in self.known]
        if not inputs or len(inputs) > 2:
            raise InputError(
                f"An encoder in {path} must have one input, or a mask as the second one, "
                f"not {len(inputs)} inputs"
            )
        self.places = [self._place(value, tokens) for value in inputs]

    def _place(self, value: Any, tokens: int) -> _Place:
        kind = value.type.tensor_type
        shape = [dimension.dim_value for dimension in kind.shape.dim]
        integer = kind.elem_type in (6, 7, 9)
        if len(shape) not in (2, 3) or (len(shape) == 3 and (integer or not shape[2])):
            raise InputError(
                f"Input {value.name} in {self.path} must be [batch, tokens, features] or integers "
                f"[batch, tokens]"
            )
        if shape[0] not in (0, 1):
            raise InputError(f"Input {value.name} in {self.path} has the fixed batch {shape[0]}")
        if not shape[1] and not tokens:
            raise InputError(f"Input {value.name} in {self.path} has no fixed number of tokens")
        if shape[1] and tokens and shape[1] != tokens:
            raise InputError(
                f"Input {value.name} in {self.path} has {shape[1]} tokens, not {tokens}"
            )
        return _Place(value.name, (1, shape[1] or tokens, *shape[2:]), integer)

    def encoder(self) -> Encoder:
        """Return the blocks that the nodes make.

        Raises :class:`InputError` that names every node that has no place in them.
        """
        values: dict[str, Value | None] = dict(self.known)
        first = self.places[0]
        shape = first.shape if len(first.shape) == 3 else (*first.shape, 1)
        source = Input(node=first.name, rows=shape[1], columns=shape[2], tokens=first.integer)
        index = np.arange(shape[1] * shape[2]).reshape(first.shape)
        values[first.name] = View(source, index)
        for place in self.places[1:]:
            full = np.ones(place.shape, np.int64 if place.integer else np.float32)
            cut = full.copy()
            cut[..., -1] = 0
            values[place.name] = Mask(full, cut)
        reasons = self._follow(values)
        output = values.get(self.model.graph.output[0].name)
        if not reasons:
            try:
                if not isinstance(output, View):
                    raise UnsupportedError("it does not depend on the input")
                return match(self.made.settled(output))
            except UnsupportedError as error:
                reasons.append(str(error))
        text = "; ".join(reasons)
        raise InputError(f"Model {self.path} is not an encoder that can be described: {text}")

    def _follow(self, values: dict[str, Value | None]) -> list[str]:
        """Evaluate the nodes that the first output needs, and return why some cannot be."""
        nodes = self._needed()
        self.made = Made()
        reasons = []
        for node in nodes:
            outputs: Sequence[Value | None] = [None] * len(node.output)
            given = [values[name] if name else None for name in node.input]
            broken = any(name and values[name] is None for name in node.input)
            if not broken:
                name = node.name or node.output[0]
                attributes = {a.name: self._helper.get_attribute_value(a) for a in node.attribute}
                fold = self._fold(node)
                try:
                    step = Node(name, node.op_type, given, attributes, fold, self.made)
                    outputs = evaluate(step)
                except UnsupportedError as error:
                    reasons.append(f"node {name} ({node.op_type}): {error}")
                except Exception as error:
                    reasons.append(f"node {name} ({node.op_type}): cannot be followed, {error}")
            values |= dict(zip(node.output, outputs, strict=False))
        return reasons

    def _needed(self) -> list[Any]:
        """Return the nodes that the first output depends on, in their order."""
        wanted = {self.model.graph.output[0].name}
        found = []
        for node in reversed(self.model.graph.node):
            if wanted & set(node.output):
                found.append(node)
                wanted |= set(node.input)
        return found[::-1]

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

    def run(self, inputs: Sequence[NDArray[np.generic]]) -> NDArray[np.float64]:
        """Return the graph's first output by ONNX's reference implementation."""
        given = {place.name: v for place, v in zip(self.places, inputs, strict=True)}
        found = self._reference.ReferenceEvaluator(self.model).run(None, given)
        return np.asarray(found[0], np.float64)


def _describe(
    encoder: Encoder, name: str, graph: _Graph
) -> tuple[ModelDescription, Mapping[str, NDArray[np.float64]]]:
    first = encoder.blocks[0]
    source = graph.places[0]
    description = ModelDescription(
        name=name,
        tokens=source.shape[1],
        features=0 if encoder.embedding != "linear" else source.shape[2],
        dim=encoder.dim,
        layers=len(encoder.blocks),
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.head_dim,
        ffn=len(first.weights["up.weight"]),
        classes=encoder.classes,
        embedding=encoder.embedding,
        vocabulary=len(encoder.weights["words"]) if encoder.embedding == "tokens" else 0,
        embedding_norm="embedding_norm.weight" in encoder.weights,
        variable=first.variable,
        class_token="class_token" in encoder.weights,
        pooling=encoder.pooling,
        positions="learned" if "positions" in encoder.weights else "none",
        norm=encoder.norm,
        epsilon=encoder.epsilon,
        placement=first.placement,
        final_norm="final_norm.weight" in encoder.weights,
        activation=_NAMES[first.activation],
    )
    weights = dict(encoder.weights)
    for layer, block in enumerate(encoder.blocks):
        weights |= {f"layers.{layer}.{part}": value for part, value in block.weights.items()}
    if encoder.norm == "rmsnorm":
        weights = {k: v for k, v in weights.items() if not k.endswith("norm.bias")}
    return description, check_weights(weights, description)


def _verify(path: Path, graph: _Graph, description: ModelDescription, weights: Weights) -> None:
    """Compare with the graph on one random input, and one that is short where that is possible."""
    random = np.random.default_rng(0)
    source = graph.places[0]
    if source.integer:
        inputs = random.integers(0, description.vocabulary, source.shape)
    else:
        inputs = random.normal(0, 1, source.shape).astype(np.float32)
    lengths = [description.tokens]
    if description.variable and description.tokens > 1:
        lengths.append(description.tokens - 1)
    for length in lengths:
        masks = [
            np.broadcast_to(np.arange(place.shape[1]) < length, place.shape).astype(
                np.int64 if place.integer else np.float32
            )
            for place in graph.places[1:]
        ]
        expected = graph.run([inputs, *masks])
        found = forward(description, weights, inputs[:, :length])["output"]
        expected = expected.reshape(-1, found.shape[-1])[: found.shape[1]]
        worst = float(np.abs(found[0] - expected).max())
        if worst > TOLERANCE * max(float(np.abs(expected).max()), 1.0) or math.isnan(worst):
            raise InputError(
                f"Model {path} does not compute what its nodes were taken for: "
                f"outputs of {length} tokens differ by {worst:.3g}"
            )
