"""Conversion of graphs in half precision to single precision."""

import math
from typing import Any

import numpy as np

from celosia.generators.frontend.onnx.file import every_node, onnx_library, subgraphs, tensors_of

_FLOAT, _HALVES = 1, (10, 16)
"""ONNX's numbers of float32, and of float16 and bfloat16."""
_KINDS = ("to", "dtype", "output_dtype")
"""Attributes that name the elements of a node's result."""
_CONSTANTS = (2**0.5, 0.5**0.5, (2 / math.pi) ** 0.5, 0.044715, 1.702, 1 / 6, 0.2, 0.01)
"""Constants of activations; a graph in half precision has them rounded."""


def has_halves(model: Any) -> bool:
    """Return whether any part of an ONNX model is in half precision (float16 or bfloat16).

    The parts are the inputs, the constant tensors, and the types to which nodes such as Cast
    convert.
    """
    kinds = {value.type.tensor_type.elem_type for value in model.graph.input}
    kinds |= {tensor.data_type for tensor in tensors_of(model)}
    nodes = every_node(model.graph)
    kinds |= {each.i for node in nodes for each in node.attribute if each.name in _KINDS}
    return not kinds.isdisjoint(_HALVES)


def widened(model: Any) -> Any:
    """Change all float16 and bfloat16 values of an ONNX model to float32, and return the model.

    A rounded constant of an activation, such as 0.0447, becomes the exact number (0.044715). The
    argument is changed; it is not copied.
    """
    numpy = onnx_library("onnx.numpy_helper")
    for tensor in tensors_of(model):
        if tensor.data_type in _HALVES:
            rounded = numpy.to_array(tensor)
            values = rounded.astype(np.float32)
            for number in _CONSTANTS if values.size == 1 else ():
                if np.abs(values) == np.float32(rounded.dtype.type(number)):
                    values = np.asarray(np.sign(values) * np.float32(number))
            tensor.CopyFrom(numpy.from_array(values, tensor.name))
    graphs = [model.graph]
    for node in every_node(model.graph):
        graphs += subgraphs(node)
        for attribute in node.attribute:
            if attribute.name in _KINDS and attribute.i in _HALVES:
                attribute.i = _FLOAT
    for graph in graphs:
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _HALVES:
                value.type.tensor_type.elem_type = _FLOAT
    return model
