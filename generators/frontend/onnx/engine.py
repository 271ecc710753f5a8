"""Execution of ONNX graphs and their parts by ONNX Runtime or, if that fails, ONNX's evaluator."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.packages import library
from celosia.generators.frontend.onnx.file import onnx_library

Array = NDArray[np.generic]
MOST_NUMBERS = 1 << 31
"""Most numbers of a value of a graph that is run."""
IR_VERSION = 10
"""Version of the format of graphs that are made here, which ONNX Runtime has read since 2024."""
_MOST_KNOWN = 1 << 28
"""Most numbers of a value that does not depend on inputs."""
_INVALID = ("[ShapeInferenceError]", "[TypeInferenceError]")
"""Words of ONNX Runtime's errors for graphs that are no ONNX."""
_SHAPE = 64
"""Most numbers of an input that may determine the shape of a node's output."""


class RunError(Exception):
    """Raised if a graph cannot be run; the message is that of ONNX Runtime or ONNX's evaluator."""


class Runner:
    """A loaded graph that can be run on inputs."""

    def __init__(self, model: Any):
        """Prepare a model.

        Raises :class:`RunError` if ONNX Runtime calls a node's types or shapes invalid, or if
        neither implementation can run the model.
        """
        runtime = library("onnxruntime", "ONNX files need", "onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._names = [value.name for value in model.graph.output]
        self._inputs = {value.name for value in model.graph.input}
        try:
            session = runtime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            self._run = session.run
        except Exception as error:
            if any(kind in str(error) for kind in _INVALID):
                raise RunError(_line(error)) from error
            try:
                self._run = onnx_library("onnx.reference").ReferenceEvaluator(model).run
            except Exception:
                raise RunError(_line(error)) from error

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the graph, and return a list of its output arrays, in the graph's order.

        ``feeds`` is a dictionary from input names to arrays; names that are not inputs of the graph
        are ignored. Raises :class:`RunError` if the arrays do not fit the graph.
        """
        inputs = {name: value for name, value in feeds.items() if name in self._inputs}
        try:
            return [np.asarray(output) for output in self._run(self._names, inputs)]
        except Exception as error:
            raise RunError(_line(error)) from error


def _line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0].rpartition(" : ")[2]
    # Of ONNX Runtime's own sources, the text behind their place and the condition there.
    match = re.search(r"Name:'(.*?)' Status Message: (.*)", line)
    if not match:
        return line
    text = re.sub(r"^/\S+ .*?\) (.* was false\. )?", "", match[2])
    return f"node {match[1]}: {text}"


def run_node(node: Any, inputs: Sequence[Any], opsets: Any) -> list[Array]:
    """Run a single ONNX node on the arrays ``inputs``, and return a list of its output arrays.

    ``opsets`` are the opset imports of the node's model. Raises :class:`InputError` if an output
    would have more than 2**28 numbers, and :class:`RunError` if the node cannot be run.
    """
    helper, numpy = onnx_library("onnx.helper"), onnx_library("onnx.numpy_helper")
    arrays = {
        name: np.asarray(value) for name, value in zip(node.input, inputs, strict=False) if name
    }
    large = {name: value for name, value in arrays.items() if value.size > _SHAPE}
    small = [numpy.from_array(v, k) for k, v in arrays.items() if k not in large]
    info = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in large.items()
    ]
    outs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", info, outs, small)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    for name, (_, shape) in inferred(model).items():
        if shape is not None and math.prod(shape) > _MOST_KNOWN:
            raise InputError(
                f"Node {node.name or node.output[0]} ({node.op_type}) makes the constant {name} "
                f"of {math.prod(shape)} numbers, of at most {_MOST_KNOWN}"
            )
    outputs = iter(Runner(model).run(large))
    return [next(outputs) if name else np.zeros(0) for name in node.output]


def inferred(model: Any) -> dict[str, tuple[int, tuple[int, ...] | None]]:
    """Return a dictionary from the name of each value of a graph to its element type and shape.

    ONNX's shape inference finds types and shapes; if it fails, the dictionary is empty. An element
    type is a number, as in ONNX's ``TensorProto``. The shape is None if it is not fully known.
    """
    try:
        graph = onnx_library("onnx.shape_inference").infer_shapes(model).graph
    except Exception:
        return {}
    kinds = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        sizes = [axis.dim_value if axis.HasField("dim_value") else -1 for axis in kind.shape.dim]
        known = kind.HasField("shape") and all(size >= 0 for size in sizes)
        kinds[value.name] = kind.elem_type, tuple(sizes) if known else None
    return kinds
