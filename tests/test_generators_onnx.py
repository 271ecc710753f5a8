"""ONNX graphs: exporters' forms are understood, and others are named node by node."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.embedding import lookup
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.sources import load_source
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")

EXAMPLES = Path(__file__).parents[1] / "examples" / "onnx"
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def refused(message, call, *arguments) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(*arguments)


def compiled_close(model, weights, preset: str, least: float) -> None:
    """Compile for a preset and compare outputs of the golden machine with the float model's."""
    rng = np.random.default_rng(0)
    count = model.tokens
    inputs = [
        rng.integers(0, model.vocabulary, count)
        if model.embedding == "tokens"
        else rng.normal(0, 1, (count, model.features))
        for _ in range(12)
    ]
    config = PRESETS[preset].replace(program_depth=1 << 14)
    compiled = compile_model(model, weights, inputs, config, Options(search=False))
    golden = GoldenModel(compiled)
    for values in inputs[:4]:
        expected = forward(model, weights, values[None])["output"][0]
        rows = values if model.embedding == "linear" else lookup(model, weights, values[None])[0]
        output = golden.run(rows)[0]
        cosine = (output * expected).sum() / np.linalg.norm(output) / np.linalg.norm(expected)
        assert cosine > least


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "patches",
            {"tokens": 7, "features": 5, "dim": 16, "layers": 3, "heads": 4, "ffn": 28,
             "classes": 3, "class_token": True, "pooling": "class", "placement": "pre",
             "final_norm": True, "activation": "gelu", "positions": "learned"},
        ),
        (
            "rows",
            {"tokens": 6, "features": 12, "dim": 12, "layers": 2, "heads": 2, "ffn": 20,
             "embedding": "none", "pooling": "none", "placement": "post", "final_norm": False,
             "activation": "relu", "positions": "none", "variable": False},
        ),
        (
            "text",
            {"tokens": 9, "dim": 12, "layers": 1, "heads": 3, "ffn": 18, "embedding": "tokens",
             "vocabulary": 20, "embedding_norm": True, "placement": "post",
             "activation": "gelu_tanh", "variable": True, "epsilon": 1e-5},
        ),
    ],
)  # fmt: skip
def test_examples_from_pytorch(name, fields) -> None:
    source = load_source(str(EXAMPLES / f"{name}.onnx"))
    model = source.description
    assert {field: getattr(model, field) for field in fields} == fields
    compiled_close(model, source.weights, "odd" if name == "rows" else "small", 0.98)


def torch_encoder(torch, *, newer: bool, path: Path) -> None:
    """Export an encoder of PyTorch's own that no file here holds."""
    layer = torch.nn.TransformerEncoderLayer(
        18, 3, 30, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=False
    )
    norm = torch.nn.LayerNorm(18)
    model = torch.nn.TransformerEncoder(layer, 4, norm=norm, enable_nested_tensor=False).eval()
    options = {"external_data": False, "verbose": False} if newer else {}
    torch.onnx.export(model, (torch.randn(1, 5, 18),), str(path), dynamo=newer, **options)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_an_encoder_exported_now(newer, tmp_path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, which exports it, is not installed")
    if newer and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("onnxscript, which PyTorch's newer exporter needs, is not installed")
    torch.manual_seed(newer)
    torch_encoder(torch, newer=newer, path=tmp_path / "new.onnx")
    source = load_onnx(tmp_path / "new.onnx")
    model, weights = source.description, source.weights
    assert (model.layers, model.heads, model.placement) == (4, 3, "pre")
    assert (model.final_norm, model.activation, model.head_dim) == (True, "gelu", 6)
    compiled_close(model, weights, "small", 0.98)


class Graph:
    """A graph made by hand: one block on [1, tokens, 6], as its parts are given."""

    def __init__(self, tokens: int | str = 4):
        self.nodes, self.known = [], {}
        self.inputs = [helper.make_tensor_value_info("x", FLOAT, [1, tokens, 6])]
        self.rng = np.random.default_rng(3)

    def add(self, kind: str, *inputs, output: str = "", **attributes) -> str:
        """Add a node; arrays among its inputs become constants."""
        names = []
        for value in inputs:
            if isinstance(value, str):
                names.append(value)
                continue
            names.append(f"c{len(self.known)}")
            self.known[names[-1]] = np.asarray(value)
        output = output or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], name=output, **attributes))
        return output

    def weight(self, *shape: int) -> np.ndarray:
        """Return random numbers."""
        return self.rng.normal(0, 0.4, shape).astype(np.float32)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Add a linear layer."""
        product = self.add("MatMul", x, self.weight(inputs, outputs))
        return self.add("Add", self.weight(outputs), product)

    def attention(self, x: str, kv_heads: int = 2, scale: float = 3**-0.5) -> str:
        """Add an attention with 2 heads of 3."""
        q, k, v = (self.linear(x, 6, 3 * heads) for heads in (2, kv_heads, kv_heads))
        q, k, v = (self.add("Reshape", part, np.array([1, 4, -1, 3])) for part in (q, k, v))
        q = self.add("Transpose", q, perm=[0, 2, 1, 3])
        k = self.add("Transpose", k, perm=[0, 2, 3, 1])
        v = self.add("Transpose", v, perm=[0, 2, 1, 3])
        if kv_heads == 1:
            k = self.add("Expand", k, np.array([1, 2, 3, 4]))
            v = self.add("Expand", v, np.array([1, 2, 4, 3]))
        scores = self.add("Mul", self.add("MatMul", q, k), np.float32(scale))
        context = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        context = self.add("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", context, np.array([1, 4, 6])), 6, 6)

    def turned(self, x: str) -> str:
        """Add a rotation of the columns' halves, as rotary positions of the exporters have it."""
        low, high = (self.add("Slice", x, *np.array([[at], [at + 3], [2]])) for at in (0, 3))
        half = self.add("Concat", self.add("Neg", high), low, axis=-1)
        cosines = self.add("Mul", x, self.weight(4, 6))
        return self.add("Add", cosines, self.add("Mul", half, self.weight(4, 6)))

    def mlp(self, x: str, activation: str = "Relu") -> str:
        """Add an MLP."""
        up = self.linear(x, 6, 10)
        if activation == "SiLU":
            hidden = self.add("Mul", up, self.add("Sigmoid", up))
        else:
            hidden = self.add(activation, up)
        return self.linear(hidden, 10, 6)

    def norm(self, x: str, epsilon: float = 1e-5) -> str:
        """Add a LayerNorm without a bias."""
        return self.add("LayerNormalization", x, self.weight(6), axis=-1, epsilon=epsilon)

    def save(self, path: Path, output: str) -> Path:
        """Write the graph."""
        graph = helper.make_graph(
            self.nodes,
            "graph",
            self.inputs,
            [helper.make_tensor_value_info(output, FLOAT, [None] * 3)],
            [onnx.numpy_helper.from_array(v, k) for k, v in self.known.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(model, str(path))
        return path


helper = onnx.helper


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_scales_shared_heads_and_gains_are_folded(kv_heads, tmp_path) -> None:
    graph = Graph()
    x = graph.add("Mul", graph.linear("x", 6, 6), graph.weight(6))
    x = graph.add("Add", x, graph.attention(x, kv_heads, scale=0.9))
    x = graph.add("Add", graph.mlp(x, "SiLU"), x)
    # The import itself compares with the graph, run by ONNX Runtime.
    source = load_onnx(graph.save(tmp_path / "model.onnx", x))
    model, weights = source.description, source.weights
    assert (model.norm, model.activation, model.embedding) == ("none", "silu", "linear")
    assert (model.heads, model.kv_heads, model.pooling) == (2, kv_heads, "none")
    compiled_close(model, weights, "small", 0.98)


def test_a_length_that_the_caller_gives(tmp_path) -> None:
    graph = Graph("n")
    x = graph.add("Add", "x", graph.attention("x"))
    x = graph.add("Add", graph.mlp(x), x)
    path = graph.save(tmp_path / "model.onnx", graph.add("ReduceMean", x, axes=[1], keepdims=0))
    assert load_onnx(path, 4).description.pooling == "mean"
    refused(
        f"Input x in {path} has no fixed number of tokens; give it with --context", load_onnx, path
    )
    path = Graph().save(tmp_path / "fixed.onnx", "x")
    refused(f"Input x in {path} has 4 tokens, not 5", load_onnx, path, 5)


def test_what_is_not_run_is_named_with_a_remedy(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    graph = Graph()
    x = graph.add("Add", "x", graph.attention("x"))
    bad = graph.add("Conv", x, graph.weight(4, 4, 1), output="patches")
    worse = graph.add("Softmax", x, output="gate", axis=-1)
    graph.save(path, graph.add("Add", graph.mlp(bad), graph.add("Mul", x, worse, output="gated")))
    message = (
        f"Model {path} is not run: it holds a product of two layers (a gated MLP), or other data "
        "that is multiplied; use an MLP without a gate; gated ones are for language models "
        "(node patches (Conv): it is a convolution of something else than the input; "
        "node gate (Softmax): it is not taken of products of queries and keys; "
        "node gated (Mul): it combines data other than as the sum of two tensors; "
        "node n29: it is not the end of a block with attention and an MLP)"
    )
    refused(message, load_onnx, path)

    start = "is not run: it holds"
    graph = Graph()
    graph.save(path, graph.linear("x", 6, 6))
    message = (
        f"{start} no Transformer block at its end; export the encoder with its head, and nothing "
        "behind that attends (node x: it is not the end of a block with attention and an MLP)"
    )
    refused(f"Model {path} {message}", load_onnx, path)

    graph = Graph()
    x = graph.add("Add", "x", graph.attention("x"), output="middle")
    graph.save(path, graph.add("Add", x, graph.mlp(x, "Exp"), output="end"))
    with pytest.raises(ValueError, match=rf"{start} an activation that is not known; use one of"):
        load_onnx(path)

    graph = Graph()
    x = graph.add("Add", "x", graph.attention(graph.norm("x", 1e-3)))
    graph.save(path, graph.add("Add", x, graph.mlp(graph.norm(x, 1e-5))))
    with pytest.raises(ValueError, match=r"norms differ in their kind or epsilon: n\d+, n\d+\)$"):
        load_onnx(path)

    graph = Graph()
    x = graph.add("Add", "x", graph.attention(graph.turned("x")))
    graph.save(path, graph.add("Add", x, graph.mlp(x)))
    with pytest.raises(ValueError, match=rf"{start} rotary positions; use the model's Hugging"):
        load_onnx(path)

    graph = Graph()
    # Keys and values of a sequence that was given once and for all.
    shares = graph.add("Softmax", graph.add("MatMul", "x", graph.weight(1, 6, 5)), axis=-1)
    x = graph.add("Add", "x", graph.add("MatMul", shares, graph.weight(1, 5, 6)))
    graph.save(path, graph.add("Add", x, graph.mlp(x)))
    with pytest.raises(ValueError, match=rf"{start} attention to constants or to another sequence"):
        load_onnx(path)

    graph = Graph()
    x = graph.add("LSTM", "x", graph.weight(1, 24, 6), graph.weight(1, 24, 6), hidden_size=6)
    graph.save(path, x)
    with pytest.raises(ValueError, match=rf"{start} a recurrent layer \(LSTM\); use a Trans"):
        load_onnx(path)


def test_what_is_not_the_machine_s_is_the_host_s(tmp_path) -> None:
    graph = Graph()
    x = graph.add("Relu", "x")
    x = graph.add("Add", x, graph.attention(x))
    x = graph.add("Add", x, graph.mlp(x, "Tanh"))
    x = graph.add("ReduceMax", x, axes=[1], keepdims=0)
    x = graph.add("Softmax", graph.linear(x, 6, 3), axis=-1)
    source = load_onnx(graph.save(tmp_path / "model.onnx", x))
    model = source.description
    assert (model.activation, model.embedding, model.pooling) == ("tanh", "none", "none")
    assert [step.what for step in source.before] == ["Relu"]
    assert [step.what for step in source.after] == ["ReduceMax, MatMul, Add, Softmax"]
    assert (source.after[0].parameters, source.after[0].products) == (18 + 3, 18)
    values = source.random(np.random.default_rng(0))
    probabilities = source.floats(source.prepare(values))
    assert probabilities.shape == (3,)
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("rms", [False, True])
def test_norms_written_out(rms, tmp_path) -> None:
    graph = Graph()

    def norm(x: str) -> str:
        centred = x if rms else graph.add("Sub", x, graph.add("ReduceMean", x, axes=[-1]))
        squares = graph.add("Pow", centred, np.float32(2))
        spread = graph.add("ReduceMean", squares, axes=[-1])
        root = graph.add("Sqrt", graph.add("Add", spread, np.float32(1e-3)))
        scaled = (
            graph.add("Mul", centred, graph.add("Reciprocal", root))
            if rms
            else graph.add("Div", centred, root)
        )
        gained = graph.add("Mul", scaled, graph.weight(6))
        return gained if rms else graph.add("Add", gained, graph.weight(6))

    x = graph.add("Add", "x", graph.attention(norm("x")))
    x = norm(graph.add("Add", x, graph.mlp(norm(x))))
    source = load_onnx(graph.save(tmp_path / "model.onnx", x))
    model = source.description
    assert (model.norm, model.final_norm) == ("rmsnorm" if rms else "layernorm", True)
    assert model.epsilon == pytest.approx(1e-3)
    compiled_close(model, source.weights, "small", 0.98)


def test_files_that_are_refused(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    refused(f"Cannot read ONNX file {path}: No such file or directory", load_onnx, path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"^File .* is not an ONNX model: "):
        load_onnx(path)
    graph = Graph()
    graph.inputs = [helper.make_tensor_value_info("x", FLOAT, [4])]
    graph.save(path, graph.add("Relu", "x"))
    message = (
        f"Input x in {path} must be [batch, tokens, features], [batch, channels, height, width] "
        "or integers [batch, tokens], not of 1 axes"
    )
    refused(message, load_onnx, path)
    graph = Graph()
    graph.inputs = [helper.make_tensor_value_info(n, INT, [1, 4]) for n in ("a", "b", "c")]
    graph.save(path, graph.add("Add", "a", graph.add("Add", "b", "c")))
    message = (
        f"Model {path} is not run: it holds no attention; give a Transformer encoder (node n1 "
        "(Add): it combines data other than as the sum of two tensors; node n1: it is not the end "
        "of a block with attention and an MLP)"
    )
    refused(message, load_onnx, path)
    graph = Graph()
    graph.inputs.append(helper.make_tensor_value_info("target", FLOAT, [1, 3, 6]))
    graph.save(path, graph.add("Add", "x", graph.add("ReduceMean", "target", axes=[1])))
    message = (
        f"Model {path} is not run: it holds no attention; give a Transformer encoder (node n1 "
        "(Add): it combines data other than as the sum of two tensors; node n1: it is not the end "
        "of a block with attention and an MLP)"
    )
    refused(message, load_onnx, path)
    graph = Graph()
    x = graph.add("Dropout", "x", np.float32(0.1), np.array(True))
    graph.save(path, x)
    message = (
        f"Model {path} was exported for training, as its dropout is on; export it again after "
        "model.eval()"
    )
    refused(message, load_onnx, path)
