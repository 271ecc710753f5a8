"""Converts graphs with a fixed batch size to graphs with a batch of 1."""

import importlib
from typing import Any

import numpy as np

_MOVES = ("Reshape", "Expand", "ConstantOfShape", "Tile")


def single(model: Any, batch: int) -> Any:
    """Return a copy of a graph for a batch of 1.

    The batch is changed to 1 in the inputs, in the shapes of reshaped or expanded values, and in
    constants that repeat one value for each element of the batch. The caller must check that the
    copy computes the same results.
    """
    helper: Any = importlib.import_module("onnx.numpy_helper")
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and dimensions[0].dim_value == batch:
            dimensions[0].dim_value = 1
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.shape.Clear()
        value.type.tensor_type.ClearField("shape")
    shapes = {name for node in graph.node if node.op_type in _MOVES for name in node.input[-1:]}
    tensors = list(graph.initializer)
    tensors += [
        part.t
        for node in graph.node
        if node.op_type == "Constant" and node.output[0] in shapes
        for part in node.attribute
        if part.name == "value"
    ]
    constant = {
        id(part.t): node.output[0]
        for node in graph.node
        if node.op_type == "Constant"
        for part in node.attribute
        if part.name == "value"
    }
    for tensor in tensors:
        values = helper.to_array(tensor)
        name = constant.get(id(tensor), tensor.name)
        changed = values
        if name in shapes and values.ndim == 1 and values.size and values[0] % batch == 0:
            changed = values.copy()
            changed[0] = max(values[0] // batch, 1) if values[0] > 0 else values[0]
        elif values.ndim > 2 and len(values) == batch and np.all(values == values[:1]):
            changed = values[:1]
        if changed is not values:
            made = np.ascontiguousarray(changed)
            tensor.CopyFrom(helper.from_array(made, tensor.name))
    return copy
