"""ONNX graphs over opsets: the meaning of nodes that changed, by ONNX Runtime's numbers."""

from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.reference.outside import graph_reference

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
OPSETS = (7, 9, 11, 12, 13, 17, 18, 20, 23)


class Opset:
    """A block on [1, 4, 6] as graphs of one opset have it."""

    def __init__(self, opset: int):
        self.opset, self.nodes, self.known = opset, [], {}
        self.rng = np.random.default_rng(5)

    def add(self, kind: str, *inputs, **attributes) -> str:
        """Add a node; arrays among its inputs become constants."""
        names = []
        for value in inputs:
            names.append(value if isinstance(value, str) else f"c{len(self.known)}")
            if not isinstance(value, str):
                self.known[names[-1]] = np.asarray(value)
        output = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], name=output, **attributes))
        return output

    def axes(self, kind: str, x: str, axes: list[int], since: int, **attributes) -> str:
        """Add a node whose axes are an attribute below an opset, and an input from it on."""
        if self.opset < since:
            return self.add(kind, x, axes=axes, **attributes)
        return self.add(kind, x, np.array(axes), **attributes)

    def linear(self, x: str, outputs: int, inputs: int = 6) -> str:
        """Add a linear layer."""
        x = self.add("MatMul", x, self.rng.normal(0, 0.5, (inputs, outputs)).astype(np.float32))
        return self.add("Add", x, self.rng.normal(0, 0.5, outputs).astype(np.float32))

    def norm(self, x: str) -> str:
        """Add a LayerNorm, as one node where the opset has it."""
        gains = self.rng.uniform(0.5, 2, 6).astype(np.float32)
        if self.opset >= 17:
            return self.add("LayerNormalization", x, gains, epsilon=1e-5)
        centred = self.add("Sub", x, self.axes("ReduceMean", x, [-1], 18))
        squares = self.add("Pow", centred, np.float32(2))
        spread = self.add("Add", self.axes("ReduceMean", squares, [2], 18), np.float32(1e-5))
        return self.add("Mul", self.add("Div", centred, self.add("Sqrt", spread)), gains)

    def attention(self, x: str) -> str:
        """Add an attention of one head on matrices without a batch, so that axis 1 is the last."""
        x = self.axes("Squeeze", x, [0], 13)
        query, key, value = (self.linear(x, 6) for _ in range(3))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[1, 0]))
        weights = self.add("Softmax", self.add("Mul", scores, np.float32(0.4)))
        context = self.linear(self.add("MatMul", weights, value), 6)
        return self.axes("Unsqueeze", context, [0], 13)

    def activation(self, x: str) -> str:
        """Add the function that is Gelu, or one whose bounds moved to inputs."""
        if self.opset >= 20:
            return self.add("Gelu", x, approximate="tanh")
        if self.opset >= 11:
            return self.add("Clip", x, np.float32(0), np.float32(6))
        return self.add("Clip", x, min=0.0, max=6.0)

    def save(self, path: Path, output: str, axes: int = 3) -> Path:
        """Write the graph."""
        known = [onnx.numpy_helper.from_array(v, k) for k, v in self.known.items()]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", FLOAT, [1, 4, 6])],
            [helper.make_tensor_value_info(output, FLOAT, [None] * axes)],
            known,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
        return path


def agrees(path: Path) -> None:
    """Compare the import with ONNX Runtime's own run of the file."""
    source = load_onnx(path)
    values = source.random(np.random.default_rng(1))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": values[None].astype(np.float32)})
    output = np.asarray(source.floats(source.prepare(values)))
    np.testing.assert_allclose(output.ravel(), expected.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", OPSETS)
def test_a_block_of_every_opset(opset, tmp_path) -> None:
    block = Opset(opset)
    x = block.add("Add", "x", block.attention(block.norm("x")))
    up = block.linear(block.norm(x), 9)
    down = block.linear(block.activation(up), 6, 9)
    if opset >= 13:
        first, second = block.add("Identity", down), np.array([6])
        down = block.add("Split", first, second, axis=2)
    x = block.add("Sum", down, x)
    x = block.add("Slice", x, *np.array([[0], [4], [1]])) if opset >= 10 else x
    mean = block.axes("ReduceMean", x, [1], 18, keepdims=0)
    agrees(block.save(tmp_path / "model.onnx", mean, 2))


@pytest.mark.parametrize("axis", [None, 1, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_the_softmax_of_heads_is_of_the_opset(axis, opset, tmp_path) -> None:
    block, path = Opset(opset), tmp_path / "model.onnx"
    heads = [
        block.add(
            "Transpose", block.add("Reshape", block.linear("x", 6), np.array([1, 4, 2, 3])), perm=p
        )
        for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    ]
    scores = block.add("MatMul", *heads[:2])
    weights = block.add("Softmax", scores, **({} if axis is None else {"axis": axis}))
    context = block.add("Transpose", block.add("MatMul", weights, heads[2]), perm=[0, 2, 1, 3])
    x = block.linear(block.add("Reshape", context, np.array([1, 4, 6])), 6)
    x = block.add("Add", "x", x)
    hidden = block.add("Relu", block.linear(x, 9))
    block.save(path, block.add("Add", x, block.linear(hidden, 6, 9)))
    # Below opset 13 axis 1 stands for heads, queries and keys together, and is the default.
    if axis == -1 or (axis is None and opset >= 13):
        agrees(path)
        return
    with pytest.raises(ValueError, match=r"\(Softmax\): it is not taken over the keys"):
        load_onnx(path)


def test_opsets_that_are_not_known_are_refused(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    newest = onnx.defs.onnx_opset_version()
    for opset, domain in ((6, ""), (newest + 1, "ai.onnx"), (999, "")):
        model = onnx.load(str(Opset(opset).save(path, "x")))
        model.opset_import[0].domain = domain
        onnx.save(model, str(path))
        message = (
            f"^Model {path} is of ONNX opset {opset}; export it again with an opset from 7 to "
            f"{newest}$"
        )
        with pytest.raises(ValueError, match=message):
            load_onnx(path)


@pytest.mark.parametrize("name", ["Max", "Min", "Sum"])
def test_functions_of_three_operands(name, tmp_path) -> None:
    block = Opset(13)
    x = block.add("Add", "x", block.attention("x"))
    up = block.linear(x, 9)
    if name == "Sum":
        x = block.add("Sum", block.linear(block.add("Relu", up), 6, 9), x, np.float32([0.5] * 6))
    else:
        ends = (np.float32(0), np.float32(-1)) if name == "Max" else (np.float32(6), np.float32(9))
        up = block.add(name, up, *ends)
        up = block.add("Relu", up) if name == "Min" else up
        x = block.add("Add", x, block.linear(up, 6, 9))
    agrees(block.save(tmp_path / "model.onnx", x))


def test_a_norm_without_an_epsilon_is_refused(tmp_path) -> None:
    block = Opset(17)
    norm = block.add("LayerNormalization", "x", np.ones(6, np.float32), epsilon=0.0)
    x = block.add("Add", "x", block.attention(norm))
    x = block.add("Add", x, block.linear(block.add("Relu", block.linear(x, 9)), 6, 9))
    path = block.save(tmp_path / "model.onnx", x)
    with pytest.raises(ValueError, match=r"a norm whose epsilon is not positive; .*its epsilon is"):
        load_onnx(path)


@pytest.mark.parametrize("swapped", [False, True])
def test_attention_and_layers_as_einsum_writes_them(swapped, tmp_path) -> None:
    """If ``swapped``, weights are left of rows, and values left of shares."""
    block = Opset(13)

    def add(equation: str, left, right) -> str:
        terms, _, target = equation.partition(" -> ")
        if swapped:
            left, right, terms = right, left, ", ".join(reversed(terms.split(", ")))
        return block.add("Einsum", left, right, equation=f"{terms} -> {target}")

    def weight(*shape: int) -> np.ndarray:
        return block.rng.normal(0, 0.5, shape).astype(np.float32)

    query, key, value = (add("abc, cde -> abde", "x", weight(6, 2, 3)) for _ in range(3))
    scores = block.add("Einsum", query, key, equation="abde,afde->adbf")
    shares = block.add("Softmax", block.add("Mul", scores, np.float32(0.5)), axis=-1)
    context = add("adbf, afde -> abde", shares, value)
    x = block.add("Add", "x", add("abde, dec -> abc", context, weight(2, 3, 6)))
    hidden = block.add("Relu", add("abc, cd -> abd", x, weight(6, 9)))
    x = block.add("Add", x, add("abd, dc -> abc", hidden, weight(9, 6)))
    agrees(block.save(tmp_path / "model.onnx", x))


def test_attention_as_one_node(tmp_path) -> None:
    block = Opset(23)
    parts = [block.linear("x", 6) for _ in range(3)]
    context = block.add("Attention", *parts, q_num_heads=2, kv_num_heads=2)
    x = block.add("Add", "x", block.linear(context, 6))
    x = block.add("Add", x, block.linear(block.add("Relu", block.linear(x, 9)), 6, 9))
    agrees(block.save(tmp_path / "model.onnx", x))


def test_branches_times_a_number(tmp_path) -> None:
    block = Opset(17)
    x = block.add("Add", "x", block.add("Mul", block.attention("x"), np.float32(0.3)))
    branch = block.linear(block.add("Relu", block.linear(x, 9)), 6, 9)
    x = block.add("Add", x, block.add("Div", branch, np.float32(3)))
    agrees(block.save(tmp_path / "model.onnx", x))


def test_the_opset_of_onnx_has_two_names(tmp_path) -> None:
    block = Opset(13)
    query, key, value = (block.linear("x", 6) for _ in range(3))
    scores = block.add("MatMul", query, block.add("Transpose", key, perm=[0, 2, 1]))
    context = block.add("MatMul", block.add("Softmax", scores), value)
    x = block.add("Add", "x", block.linear(context, 6))
    x = block.add("Add", x, block.linear(block.add("Relu", block.linear(x, 9)), 6, 9))
    path = block.save(tmp_path / "model.onnx", x)
    model = onnx.load(str(path))
    model.opset_import[0].domain = "ai.onnx"
    onnx.save(model, str(path))
    agrees(path)


def _squeezed(block: Opset, x: str) -> tuple[str, int]:
    return block.add("Softmax", block.add("Squeeze", block.linear(x, 5), np.array([0]))), 2


def _one_class(block: Opset, x: str) -> tuple[str, int]:
    logits = block.linear(block.add("ReduceMean", x, axes=[1], keepdims=0), 5)
    return block.add("Softmax", block.add("Squeeze", logits)), 1


def _one_number(block: Opset, x: str) -> tuple[str, int]:
    return block.add("ReduceMax", x, keepdims=0), 0


def _turned(block: Opset, x: str) -> tuple[str, int]:
    return block.add("Softmax", block.add("Transpose", x, perm=[1, 0, 2])), 3


def _repeated(block: Opset, x: str) -> tuple[str, int]:
    return block.add("Tile", x, np.array([2, 1, 1])), 3


@pytest.mark.parametrize("tail", [_squeezed, _one_class, _one_number, _turned, _repeated])
def test_an_output_without_a_batch_is_whole(tail, tmp_path) -> None:
    block = Opset(17)
    x = block.add("Add", "x", block.attention(block.norm("x")))
    up = block.add("Relu", block.linear(block.norm(x), 9))
    x = block.add("Add", x, block.linear(up, 6, 9))
    agrees(block.save(tmp_path / "model.onnx", *tail(block, x)))


def test_an_output_without_elements_is_refused(tmp_path) -> None:
    block = Opset(17)
    x = block.add("Add", "x", block.attention(block.norm("x")))
    path = block.save(tmp_path / "model.onnx", block.add("Slice", x, *np.array([[4], [9], [1]])))
    with pytest.raises(InputError, match="its output has no elements"):
        load_onnx(path)


@pytest.mark.parametrize("kind", ["inside", "outside", "largest"])
def test_a_norm_of_nearly_equal_numbers(kind, tmp_path) -> None:
    """An epsilon matters to rows that vary little, so its place is not left to other rows."""
    block, epsilon = Opset(13), np.float32(1.5259e-5 if kind == "inside" else 1e-8)
    mean = block.add("ReduceMean", "x", axes=[-1])
    centred = block.add("Sub", "x", mean)
    variance = block.add("ReduceMean", block.add("Pow", centred, np.float32(2)), axes=[-1])
    if kind == "outside":
        scale = block.add("Add", block.add("Sqrt", variance), epsilon)
    else:
        variance = block.add("Add" if kind == "inside" else "Max", variance, epsilon)
        scale = block.add("Sqrt", variance)
    x = block.add("Add", "x", block.attention(block.add("Div", centred, scale)))
    path = block.save(tmp_path / "model.onnx", x)
    if kind != "inside":
        with pytest.raises(InputError, match="something else than the root of their variance"):
            load_onnx(path)
        return
    source = load_onnx(path)
    assert source.description.epsilon == 1.5259e-5
    agrees(path)


def test_a_reference_of_integer_weights_computes_floats(tmp_path) -> None:
    block = Opset(17)
    x = block.add("Add", "x", block.attention(block.norm("x")))
    weight = block.rng.integers(-127, 128, (6, 5)).astype(np.int8)
    scale, zero = np.full(5, 0.01, np.float32), np.zeros(5, np.int8)
    weight = block.add("DequantizeLinear", weight, scale, zero, axis=1)
    path = block.save(tmp_path / "model.onnx", block.add("MatMul", x, weight))
    source = load_onnx(path)
    values = source.random(np.random.default_rng(1))
    expected = graph_reference(path)(values)[0]
    output = source.floats(source.prepare(values))
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
