"""Functions of every element, as ONNX Runtime computes them."""

import math

import numpy as np
import pytest

from celosia.generators.frontend.onnx.function_cache import FunctionCache
from celosia.generators.frontend.onnx.functions import BINARY, PARAMETRIC, UNARY
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.onnx.values import Tensor, UnsupportedError, View
from celosia.generators.studies.comparison import compare
from tests.test_onnx_forms import Form

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
helper = onnx.helper
X = np.concatenate([np.linspace(-6, 6, 49), [1e-3, -1e-3, 40.0, -40.0]]).astype(np.float32)


class Node:
    """A node with attributes and constants behind its first input."""

    def __init__(self, kind: str, constants=(), **attributes):
        self.kind, self._constants, self._attributes = kind, constants, attributes
        self.inputs = [X, *constants]

    def attribute(self, name, default):
        return self._attributes.get(name, default)

    def constant(self, place):
        return self._constants[place - 1]

    def run(self, *more: np.ndarray) -> np.ndarray:
        """Return the result of ONNX Runtime for X and further inputs."""
        arrays = [*self._constants, *more]
        names = [f"c{n}" if array is not None else "" for n, array in enumerate(arrays)]
        node = helper.make_node(self.kind, ["x", *names], ["y"], **self._attributes)
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info("x", kind, X.shape)],
            [helper.make_tensor_value_info("y", kind, None)],
            [
                onnx.numpy_helper.from_array(array, name)
                for array, name in zip(arrays, names, strict=True)
                if array is not None
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        session = runtime.InferenceSession(model.SerializeToString())
        return session.run(None, {"x": X})[0]


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


@pytest.mark.parametrize("kind", sorted(UNARY))
def test_functions_without_parameters(kind: str) -> None:
    with np.errstate(all="ignore"):
        made = UNARY[kind](X.astype(np.float64))
    np.testing.assert_allclose(made, Node(kind).run(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "node",
    [
        Node("Clip"),
        Node("Clip", [number(-1.5), number(2.5)]),
        Node("Clip", [None, number(2.5)]),
        Node("Clip", [number(-1.5)]),
        Node("Elu"),
        Node("Elu", alpha=0.3),
        Node("HardSigmoid"),
        Node("HardSigmoid", alpha=0.4, beta=0.1),
        Node("LeakyRelu"),
        Node("LeakyRelu", alpha=0.3),
        Node("PRelu", [np.array([0.7], np.float32)]),
        Node("PRelu", [np.full(len(X), 0.7, np.float32)]),
    ],
    ids=lambda node: node.kind,
)
def test_functions_with_parameters(node: Node) -> None:
    made = PARAMETRIC[node.kind](node)(X.astype(np.float64))
    np.testing.assert_allclose(made, node.run(), rtol=2e-6, atol=2e-6)


def test_clip_takes_attributes_of_earlier_opsets() -> None:
    assert PARAMETRIC["Clip"](Node("Clip", min=-1.0, max=2.0))(X).min() == -1
    assert PARAMETRIC["Clip"](Node("Clip", min=-1.0, max=2.0))(X).max() == 2


def test_slopes_of_columns_must_be_alike() -> None:
    node = Node("PRelu", [np.linspace(0, 1, len(X))])
    with pytest.raises(UnsupportedError, match=r"^its slopes differ from column to column$"):
        PARAMETRIC["PRelu"](node)


@pytest.mark.parametrize("kind", sorted(BINARY))
def test_functions_of_two_operands(kind: str) -> None:
    other = np.full(X.shape, 3.0, np.float32)
    np.testing.assert_allclose(BINARY[kind](X, other), Node(kind).run(other), rtol=1e-5)


@pytest.mark.parametrize(("low", "high"), [(0.0, 20.0), (-50.0, 50.0), (None, 3000.0)])
def test_a_bound_far_from_zero_is_not_left_out(low: float | None, high: float) -> None:
    view = View(Tensor(node="up", rows=1, columns=2), (1, 2)).apply(lambda x: np.clip(x, low, high))
    assert view.factor() is None
    with pytest.raises(UnsupportedError, match=r"^its input is a function that is none of gelu, "):
        FunctionCache().without_function(view)


def erf(form: Form, x: str) -> str:
    part = form.add("Erf", form.add("Div", x, np.float32(math.sqrt(2))))
    half = form.add("Mul", x, np.float32(0.5))
    return form.add("Mul", half, form.add("Add", part, np.float32(1)))


def tanh(form: Form, x: str) -> str:
    cube = form.add("Mul", form.add("Pow", x, np.float32(3)), np.float32(0.044715))
    inner = form.add("Mul", form.add("Add", x, cube), np.float32(math.sqrt(2 / math.pi)))
    half = form.add("Mul", x, np.float32(0.5))
    return form.add("Mul", half, form.add("Add", form.add("Tanh", inner), np.float32(1)))


def quick(form: Form, x: str) -> str:
    return form.add("Mul", x, form.add("Sigmoid", form.add("Mul", x, np.float32(1.702))))


@pytest.mark.parametrize("half", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
@pytest.mark.parametrize(
    ("name", "make"), [("gelu", erf), ("gelu_tanh", tanh), ("quick_gelu", quick)]
)
def test_functions_in_half_precision(name, make, half, tmp_path) -> None:
    """Constants are rounded, and each layer of the graph rounds its results."""
    form, path = Form(), tmp_path / "model.onnx"
    form.mlp = lambda x: form.linear(make(form, form.linear(x, 9)), 6, 9)
    x = form.block(form.add("Cast", "x", to=half), norm=form.norm)
    form.save(path, form.block(x, norm=form.norm))
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            rounded = values.astype(helper.tensor_dtype_to_np_dtype(half))
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = half
    onnx.save(model, path)
    source = load_onnx(path)
    assert source.description.activation == name
    if half == onnx.TensorProto.FLOAT16:  # ONNX Runtime has bfloat16 only for some nodes
        values = source.random(np.random.default_rng(1))
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"x": np.asarray(values, np.float16)[None]})
        np.testing.assert_allclose(source.floats(values), expected[0], rtol=0.02, atol=0.1)
    # In float32, which does not round each node's result, they are equal.
    reference = compare(source, path)
    assert reference["refused"] is None
    assert reference["difference"] < 1e-5
