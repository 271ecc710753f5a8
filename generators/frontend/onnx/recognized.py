"""Finds the layers that an ONNX graph computes, and the encoder that these layers form.

The host computes the nodes before the first Transformer block and after the last one that match no
layer of the accelerator.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.engine import run_node
from celosia.generators.frontend.onnx.explain import explain
from celosia.generators.frontend.onnx.file import onnx_library
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.inputs import GraphInput
from celosia.generators.frontend.onnx.length import probe_length, required_length
from celosia.generators.frontend.onnx.match import Encoder, match
from celosia.generators.frontend.onnx.node import Array, Node
from celosia.generators.frontend.onnx.nodes import symbolic_outputs
from celosia.generators.frontend.onnx.reading import read_graph
from celosia.generators.frontend.onnx.values import (
    Context,
    Input,
    Mask,
    Opaque,
    PoolingScores,
    Scores,
    UnsupportedError,
    Value,
    View,
)


def is_causal(path: Path) -> bool:
    """Return whether an ONNX file's model has a causal mask; False if no model is recognized."""
    try:
        tokens = required_length(path) or probe_length(path)
        return read_graph(path, tokens, lambda graph: read_encoder(graph)[0].blocks[0].causal)
    except InputError:
        return False


def read_encoder(graph: Graph) -> tuple[Encoder, dict[str, Value]]:
    """Return the encoder that a graph computes, and the dictionary from :func:`follow`.

    The dictionary has the meaning of each value by name: a constant, a mask or a view (elements of
    a tensor). Raises :class:`InputError` if parts of the graph are unsupported; the message names
    these parts.
    """
    if graph.blocks is None:
        try:
            graph.blocks = _read_encoder(graph)
        except InputError as error:
            graph.blocks = error
    blocks: tuple[Encoder, dict[str, Value]] | InputError = graph.blocks
    if isinstance(blocks, InputError):
        raise blocks
    return blocks


def _read_encoder(graph: Graph) -> tuple[Encoder, dict[str, Value]]:
    values, reasons = follow(graph)
    first, error = _matched(graph, values, graph.output)
    if first is not None:
        return first, values
    others: list[UnsupportedError] = []
    # The last value after the blocks that is understood; the host computes what follows it.
    for node in reversed(graph.needed({graph.output}, set())):
        for name in node.output:
            if name and _host_can(graph, values, name):
                encoder, wrong = _matched(graph, values, name)
                if encoder is not None and not _lacks_mlp(graph, values, encoder, name):
                    return replace(encoder, name=name), values
                others += [] if wrong is None else [wrong]
    raise InputError(f"Model {graph.path} is not run: {explain(graph, reasons, error, others)}")


def _matched(
    graph: Graph, values: dict[str, Value], name: str
) -> tuple[Encoder | None, UnsupportedError | None]:
    value = values.get(name)
    try:
        if not isinstance(value, View):
            raise UnsupportedError("the output does not depend on the input")
        encoder = match(graph.cache.without_function(value), graph.names)
        nodes = graph.needed({encoder.prologue} - {""}, set())
        if _attends(graph, values, nodes):
            read = {name for node in nodes for name in node.input}
            others = [graph_input.name for graph_input in graph.others if graph_input.name in read]
            why = "there is attention before it that is in no block like those behind"
            if others:
                why = f"it takes {', '.join(others)} between blocks"
            raise UnsupportedError(f"node {encoder.prologue}: {why}")
        return encoder, None
    except UnsupportedError as error:
        return None, error


def _lacks_mlp(graph: Graph, values: dict[str, Value], encoder: Encoder, name: str) -> bool:
    """Return whether blocks without an MLP have something behind that is added like one."""
    if "up.weight" in encoder.blocks[0].weights:
        return False
    adding = (n for n in graph.needed({graph.output}, {name}) if n.op_type in ("Add", "Sum"))
    return any(
        all(isinstance(values.get(operand), View) for operand in node.input)
        and np.prod(graph.shape(node.output[0])) == encoder.rows * encoder.dim
        for node in adding
    )


def _host_can(graph: Graph, values: dict[str, Value], name: str) -> bool:
    """Return whether the host can compute all after a value: no attention, and no other data."""
    value = values.get(name)
    if not isinstance(value, View):
        return False
    nodes, data = graph.needed({graph.output}, {name}), {graph.inputs[0].name}
    if value.tensor.rows == 1:  # how many tokens there were is lost
        data |= {graph_input.name for graph_input in graph.inputs if graph_input.masks}
    # Of the input some nodes may take the shape.
    reading = (node for node in nodes if node.op_type not in ("Shape", "Size"))
    read = {operand for node in reading for operand in node.input}
    return not data & read and not _attends(graph, values, nodes)


def _attends(graph: Graph, values: dict[str, Value], nodes: Sequence[Any]) -> bool:
    """Return whether some of the nodes multiply data by data, as attention of tokens does.

    Pooling by constant queries does not count, nor does a product of one row with rows of other
    inputs.
    """
    for node in nodes:
        for output in node.output:
            value = values.get(output)
            if isinstance(value, View) and isinstance(value.tensor, Scores | Context):
                return True
        operands = [values.get(operand) for operand in node.input]
        data = [operand for operand in operands if isinstance(operand, View)]
        pools = any(isinstance(operand.tensor, PoolingScores) for operand in data)
        if node.op_type in ("MatMul", "Einsum") and data == operands and not pools:
            own = [graph.shape(name) for name in node.input if _depends(graph, name)]
            if len(own) != 1 or np.prod(own[0]) != own[0][-1]:
                return True
    return False


def _depends(graph: Graph, name: str) -> bool:
    """Return whether a value depends on the numbers of the first input."""
    return graph.inputs[0].name in {
        name,
        *(operand for node in graph.needed({name}, set()) for operand in node.input),
    }


def follow(graph: Graph) -> tuple[dict[str, Value], list[str]]:
    """Return the meaning of each value in a graph, and a reason for each unsupported node.

    The meanings are a dictionary by the values' names: a constant, a :class:`Mask`, or a
    :class:`View` (elements of a tensor). Outputs of unsupported nodes are views of an
    :class:`Opaque`, a tensor that the host computes.
    """
    first, helper = graph.inputs[0], onnx_library("onnx.helper")
    values: dict[str, Value] = dict(graph.known)
    values[first.name] = _input(graph, first)
    for graph_input in graph.inputs[1:]:
        if graph_input.kind == "other":
            values[graph_input.name] = _opaque(graph, graph_input.name)
            continue
        count = graph.tokens if graph_input.kind == "length" else graph_input.count
        full, cut = graph_input.array_for(count), graph_input.array_for(count - 1)
        values[graph_input.name] = Mask(full, cut) if graph_input.masks else full
    reasons = []
    for node in graph.needed({graph.output}, set()):
        operands = [values[name] if name else None for name in node.input]
        name = node.name or node.output[0]
        own = node.domain in ("", "ai.onnx")
        kind = node.op_type if own else f"{node.domain}.{node.op_type}"
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        outputs: Sequence[Value] = ()
        try:
            fold = _fold(graph, node)
            step = Node(name, kind, operands, attributes, fold, graph.opset, graph.cache)
            outputs = symbolic_outputs(step)
        except InputError as error:
            raise InputError(f"Model {graph.path} is not run: {error}") from error
        except UnsupportedError as error:
            reasons.append(f"node {name} ({node.op_type}): {error}")
        except Exception as error:
            reasons.append(f"node {name} ({node.op_type}): cannot be followed, {error}")
        for number, output in enumerate(node.output):
            if not output:
                continue
            value = outputs[number] if number < len(outputs) else _opaque(graph, output)
            if isinstance(value, View) and isinstance(value.tensor, Opaque):
                value = _opaque(graph, output)
            values[output] = value
            _name(graph, output, value)
    return values, reasons


def _input(graph: Graph, graph_input: GraphInput) -> View:
    shape = graph_input.shape
    if graph_input.kind == "tokens" or len(graph.sample_shape) == 1:
        rows, columns = graph_input.count, 1
    else:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
    tensor = Input(
        node=graph_input.name, rows=rows, columns=columns, tokens=graph_input.kind == "tokens"
    )
    return View(tensor, shape)


def _opaque(graph: Graph, name: str) -> Value:
    shape = graph.shape(name)
    columns = shape[-1] if shape else 1
    size = int(np.prod(shape))
    rows = size // columns if columns else 0
    tensor = Opaque(node=name, rows=rows, columns=columns)
    return View(tensor, shape)


def _name(graph: Graph, name: str, value: Value) -> None:
    if not isinstance(value, View):
        return
    with contextlib.suppress(UnsupportedError):
        value = graph.cache.without_function(value)
        if value.ordered:
            graph.names.setdefault(id(value.tensor), name)
            graph.cache.kept.append(value.tensor)


def _fold(graph: Graph, node: Any) -> Callable[[Sequence[Any]], list[Array]]:
    """Return a function that computes one node from numbers."""
    opsets = graph.model.opset_import
    return lambda inputs: run_node(node, inputs, opsets)
