"""ONNX graphs in the forms of published models, as the machine's blocks."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.onnx.text import load_onnx_text
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.reference.floats import forward
from celosia.generators.studies import comparison
from celosia.generators.studies.inspection import inspect
from celosia.tb.models.try_model import try_model
from tests.test_onnx_opsets import FLOAT, Opset, agrees, helper, onnx, runtime

INT = onnx.TensorProto.INT64


class Form(Opset):
    """Parts of models of opset 17, of width 6 on 4 tokens."""

    def __init__(self):
        super().__init__(17)

    def attention(self, x: str, mask: str = "", heads: int = 2, head_dim: int = 3) -> str:
        """Add an attention with some heads; ``mask`` is added to its scores."""
        width = heads * head_dim
        parts = [
            self.add(
                "Transpose",
                self.add("Reshape", self.linear(x, width), np.array([1, 4, heads, head_dim])),
                perm=p,
            )
            for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        ]
        scores = self.add("Mul", self.add("MatMul", *parts[:2]), np.float32(0.5))
        if mask:
            scores = self.add("Add", scores, mask)
        context = self.add("MatMul", self.add("Softmax", scores, axis=-1), parts[2])
        context = self.add("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", context, np.array([1, 4, width])), 6, width)

    def mlp(self, x: str, width: int = 9) -> str:
        """Add an MLP."""
        return self.linear(self.add("Relu", self.linear(x, width)), 6, width)

    def batch_norm(self, x: str) -> str:
        """Add a batch normalization of the columns, as PyTorch's takes them: as channels."""
        x = self.add("Transpose", x, perm=[0, 2, 1])
        scale, variance = (self.rng.uniform(0.5, 2, 6).astype(np.float32) for _ in range(2))
        shift, mean = (self.rng.normal(0, 1, 6).astype(np.float32) for _ in range(2))
        x = self.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-3)
        return self.add("Transpose", x, perm=[0, 2, 1])

    def block(self, x: str, mask: str = "", norm=lambda x: x) -> str:
        """Add a block whose norms are in front of its parts."""
        x = self.add("Add", x, self.attention(norm(x), mask))
        return self.add("Add", x, self.mlp(norm(x)))

    def write(self, path: Path, output: str, inputs, axes: int = 3) -> Path:
        """Write the graph with inputs as [name, kind, shape]."""
        self.save(path, output, axes)
        model = onnx.load(str(path))
        del model.graph.input[:]
        model.graph.input.extend(helper.make_tensor_value_info(*value) for value in inputs)
        onnx.save(model, str(path))
        return path


def runs(path: Path) -> None:
    """Run the model on the golden machine, against the integer and the float reference."""
    result = try_model(path)
    assert (result["refused"], result["mismatches"]) == (None, 0)
    assert result["cosine"] > 0.98


@pytest.mark.parametrize("placement", ["pre", "post", "bare"])
def test_batch_norms_fold_into_the_layers_around_them(placement, tmp_path) -> None:
    form = Form()
    if placement == "pre":
        x = form.block(form.batch_norm("x"), norm=form.batch_norm)
    else:
        x = form.linear("x", 6)
        for part in (form.attention, form.mlp):
            x = form.batch_norm(form.add("Add", x, part(x)))
    x = x if placement == "bare" else form.add("ReduceMean", x, axes=[1], keepdims=0)
    path = form.save(tmp_path / "model.onnx", x, 3 if placement == "bare" else 2)
    agrees(path)
    model = load_onnx(path).description
    assert (model.norm, model.classes) == ("none", 0 if placement == "none" else 6)
    runs(path)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (4, 1, 6), (1, 2, 2, 2, 3), (1, 1, 2, 2, 2, 3)])
def test_inputs_of_any_rank(shape, tmp_path) -> None:
    form = Form()
    x = form.block(form.linear(form.add("Reshape", "x", np.array([1, 4, 6])), 6))
    x = form.add("Squeeze", x, np.array([0])) if len(shape) < 3 else x
    path = tmp_path / "model.onnx"
    form.write(path, x, [("x", FLOAT, shape)], 2 if len(shape) < 3 else 3)
    source = load_onnx(path)
    assert source.description.embedding == "linear"
    values = source.random(np.random.default_rng(1))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": values.reshape(shape).astype(np.float32)})
    output = np.asarray(source.floats(source.prepare(values)))
    np.testing.assert_allclose(output.ravel(), expected.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post", "bare"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_attention_without_an_mlp(placement, count, tmp_path) -> None:
    form = Form()
    x = form.linear("x", 6)
    for _ in range(count):
        if placement == "post":
            x = form.norm(form.add("Add", x, form.attention(x)))
        else:
            x = form.add("Add", x, form.attention(form.norm(x) if placement == "pre" else x))
    path = form.save(tmp_path / "model.onnx", x)
    agrees(path)
    model = load_onnx(path).description
    assert (model.layers, model.ffn) == (count, 0)
    runs(path)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_blocks_of_other_heads_and_widths(placement, tmp_path) -> None:
    form = Form()
    x = form.linear("x", 6)
    for heads, head_dim, width in ((1, 5, 7), (3, 2, 12)):
        if placement == "post":
            x = form.norm(form.add("Add", x, form.attention(x, "", heads, head_dim)))
            x = form.norm(form.add("Add", x, form.mlp(x, width)))
        else:
            x = form.add("Add", x, form.attention(form.norm(x), "", heads, head_dim))
            x = form.add("Add", x, form.mlp(form.norm(x), width))
    path = form.save(tmp_path / "model.onnx", x)
    agrees(path)
    model = load_onnx(path).description
    assert (model.heads, model.head_dim, model.ffn) == (3, 5, 12)
    runs(path)


def test_a_first_token_that_is_no_class_token(tmp_path) -> None:
    form = Form()
    x = form.add("Gather", form.block(form.linear("x", 6)), np.array(0), axis=1)
    path = form.save(tmp_path / "model.onnx", form.linear(x, 3), 2)
    agrees(path)
    source = load_onnx(path)
    assert source.description.pooling == "none"
    assert [step.what for step in source.after] == ["Gather, MatMul, Add"]


def embedded(form: Form) -> str:
    """Add an embedding of tokens, with token types that are chosen out of a longer row of them."""
    table = form.rng.normal(0, 1, (20, 6)).astype(np.float32)
    types = form.rng.normal(0, 1, (2, 6)).astype(np.float32)
    chosen = form.add("GatherElements", np.zeros((1, 512), np.int64), np.arange(4)[None], axis=1)
    return form.add("Add", form.add("Gather", table, "ids"), form.add("Gather", types, chosen))


def test_token_types_that_the_graph_makes(tmp_path) -> None:
    form = Form()
    path = tmp_path / "model.onnx"
    form.write(path, form.block(embedded(form)), [("ids", INT, [1, 4])])
    source = load_onnx(path)
    ids = np.array([3, 1, 19, 7])
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"ids": ids[None]})
    np.testing.assert_allclose(source.floats(source.prepare(ids)), expected[0], rtol=1e-4)


@pytest.mark.parametrize("kind", [FLOAT, INT, onnx.TensorProto.BOOL])
def test_a_sequence_and_its_mask(kind, tmp_path) -> None:
    form = Form()
    there = form.add("Cast", "mask", to=FLOAT)
    hidden = form.add("Mul", form.add("Sub", np.float32(1), there), np.float32(-1e9))
    x = form.block(form.linear("x", 6), form.add("Unsqueeze", hidden, np.array([1, 2])))
    rows = form.add("Unsqueeze", there, np.array([2]))
    total = form.add("ReduceSum", form.add("Mul", x, rows), np.array([1]), keepdims=0)
    count = form.add("ReduceSum", rows, np.array([1]), keepdims=0)
    mean = form.add("Div", total, form.add("Clip", count, np.float32(1e-9)))
    path = tmp_path / "model.onnx"
    form.write(path, mean, [("x", FLOAT, [1, 4, 6]), ("mask", kind, [1, 4])], 2)
    source = load_onnx(path)
    assert (source.description.variable, source.description.pooling) == (True, "mean")
    values = source.random(np.random.default_rng(1))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    known = helper.tensor_dtype_to_np_dtype(kind)
    for length in (4, 2):
        mask = (np.arange(4) < length)[None].astype(known)
        feeds = {"x": values[None].astype(np.float32), "mask": mask}
        (expected,) = session.run(None, feeds)
        output = source.floats(source.prepare(values[:length]))
        np.testing.assert_allclose(output.ravel(), expected.ravel(), rtol=1e-4, atol=1e-5)


def test_a_mask_of_padding(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    hidden = form.add("Mul", form.add("Cast", "key_padding_mask", to=FLOAT), np.float32(-1e9))
    x = form.block(form.linear("x", 6), form.add("Unsqueeze", hidden, np.array([1, 2])))
    kind = onnx.TensorProto.BOOL
    form.write(path, x, [("x", FLOAT, [1, 4, 6]), ("key_padding_mask", kind, [1, 4])])
    source = load_onnx(path)
    assert source.description.variable
    values = source.random(np.random.default_rng(1))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for length in (4, 2):
        mask = (np.arange(4) >= length)[None]
        feeds = {"x": values[None].astype(np.float32), "key_padding_mask": mask}
        (expected,) = session.run(None, feeds)
        output = source.floats(source.prepare(values[:length]))
        np.testing.assert_allclose(output, expected[0, :length], rtol=1e-4, atol=1e-5)


def test_other_inputs_are_never_taken_for_a_mask(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    form = Form()
    mean = form.add("ReduceMean", form.block(form.linear("x", 6)), axes=[1], keepdims=0)
    both = form.add("Add", mean, form.linear("table", 6, 4))
    form.write(path, both, [("x", FLOAT, [1, 4, 6]), ("table", FLOAT, [1, 4])], 2)
    assert load_onnx(path).named.shapes == {"table": [4]}

    form = Form()
    there = form.add("Cast", "mask", to=FLOAT)
    # Places of ones, a number that no inference of shapes knows, make the graph run for its shapes.
    places = form.add("Transpose", form.add("NonZero", "mask"), perm=[1, 0])
    count = form.add("ReduceSum", form.add("Cast", places, to=FLOAT), keepdims=0)
    kept = form.add("Mul", form.block(form.linear("x", 6)), form.add("Add", there, count))
    form.write(path, kept, [("x", FLOAT, [1, 4, 6]), ("mask", INT, [1, 4, 6])])
    assert load_onnx(path).named.shapes == {"mask": [4, 6]}


def test_outputs_and_tensors_that_do_not_matter_are_named(tmp_path) -> None:
    form = Form()
    x = form.block(form.linear("x", 6))
    first, second = (form.add("Identity", form.linear(x, 3)) for _ in range(2))
    path = form.save(tmp_path / "model.onnx", first)
    model = onnx.load(str(path))
    model.graph.output.append(helper.make_tensor_value_info(second, FLOAT, [None] * 3))
    onnx.save(model, str(path))
    names = list(form.known)
    other = f"output {second}; model.onnx:{second} asks for it"
    assert load_onnx(path).unused == (*names[-2:], other)


def test_each_output_of_a_graph_is_one_to_ask_for(tmp_path, celosia) -> None:
    form = Form()
    middle = form.block(form.linear("x", 6))
    end = form.block(middle)
    scores = form.linear(form.add("ReduceMean", end, axes=[1], keepdims=0), 3)
    path = form.save(tmp_path / "model.onnx", scores, 2)
    model = onnx.load(str(path))
    model.graph.node.append(helper.make_node("Identity", ["x"], ["same"]))
    model.graph.node.append(helper.make_node("Identity", [middle], ["after/1:0"]))
    middle = "after/1:0"
    named = [helper.make_tensor_value_info(n, FLOAT, [None] * 3) for n in (middle, end, "same")]
    model.graph.output.extend(named)
    onnx.save(model, str(path))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values = np.random.default_rng(1).normal(0, 1, (1, 4, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    names = (scores, middle, end)
    for output, expected in zip(names, session.run([*names], {"x": values}), strict=True):
        asked = f"{path}:{output}"
        source = load_source(asked)
        floats = source.floats(source.prepare(values[0]))
        np.testing.assert_allclose(floats.ravel(), expected.ravel(), rtol=1e-4, atol=1e-5)
        assert comparison.compare(source, Path(asked))["difference"] < 1e-5
        words = ("run", asked, "--inputs", tmp_path / "x.npy", "--sim", "golden", "--config")
        code, _, errors = celosia(*words, "small", "--output", tmp_path / "out.npy")
        assert code == 0, errors
        floats = np.load(tmp_path / "out.npy").ravel()
        assert floats @ expected.ravel() > 0.99 * np.linalg.norm(floats) * np.linalg.norm(expected)
    code, _, errors = celosia("inspect", f"{path}:end")
    named = ", ".join([scores, middle, end, "same"])
    assert (code, errors) == (2, f"celosia: Model {path} has no output 'end'; it has {named}\n")
    with pytest.raises(ValueError, match="is not run: it holds no Transformer block"):
        load_source(f"{path}:same")


def language_model(path: Path, words: int, *, whole: bool = True) -> Path:
    """Write a decoder like GPT-2; its head and its last norm only where it is ``whole``."""
    form = Form()
    norms = iter(form.rng.uniform(0.5, 2, (3, 6)).astype(np.float32))

    def norm(x: str) -> str:
        return form.add("LayerNormalization", x, next(norms), epsilon=1e-5)

    table = form.rng.normal(0, 1, (words, 6)).astype(np.float32)
    places = form.rng.normal(0, 1, (4, 6)).astype(np.float32)
    form.known["later"] = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    x = form.block(form.add("Add", form.add("Gather", table, "ids"), places), "later", norm)
    return form.write(path, form.linear(norm(x), words) if whole else x, [("ids", INT, [1, 4])])


@pytest.mark.parametrize("words", [5, 20])
def test_a_bias_in_the_head_of_a_language_model(words, tmp_path) -> None:
    path = language_model(tmp_path / "model.onnx", words)
    with pytest.raises(ValueError, match=f"run it with: celosia run {re.escape(str(path))}$"):
        load_onnx(path)
    model, weights = load_onnx_text(path)
    assert model.head_bias
    ids = np.random.default_rng(1).integers(0, words, (1, 4))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"ids": ids})
    logits = forward(model, weights, ids)["logits"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    runs(path)


def test_a_text_that_is_shorter_than_a_graph_is_compared(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(comparison, "_LENGTH", 2)
    path = language_model(tmp_path / "model.onnx", 20)
    report = comparison.compare(load_text(str(path)), path)
    assert report["refused"] is None
    assert 0 < report["difference"] < comparison.NEAR


def test_a_language_model_without_its_head(tmp_path) -> None:
    path = language_model(tmp_path / "model.onnx", 20, whole=False)
    wrong = (
        "it has 6 output columns for each token, but a vocabulary of 20 tokens; export a decoder "
        "like GPT-2 with all of its layers, from token numbers to one score for each token of the "
        "vocabulary, or use its Hugging Face folder if celosia run knows its type"
    )
    start = f"Model {path} is not run: its mask is causal, but as a language model "
    with pytest.raises(ValueError, match=f"^{re.escape(start + wrong)}$"):
        load_onnx(path)
    start = f"Model {path} is not run as a language model: "
    with pytest.raises(ValueError, match=f"^{re.escape(start + wrong)}$"):
        load_onnx_text(path)


def test_a_graph_of_5000_tokens_is_looked_at_in_seconds(tmp_path) -> None:
    tokens, width, heads = 5000, 64, 4
    form, path = Form(), tmp_path / "model.onnx"

    def linear(x: str, inputs: int, outputs: int) -> str:
        return form.linear(x, outputs, inputs)

    def attention(x: str) -> str:
        parts = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            shape = np.array([1, tokens, heads, width // heads])
            part = form.add("Reshape", linear(x, width, width), shape)
            parts.append(form.add("Transpose", part, perm=perm))
        scores = form.add("Mul", form.add("MatMul", *parts[:2]), np.float32(0.25))
        weights = form.add("Softmax", form.add("Add", scores, hidden), axis=-1)
        context = form.add("Transpose", form.add("MatMul", weights, parts[2]), perm=[0, 2, 1, 3])
        context = form.add("Reshape", context, np.array([1, tokens, width]))
        return linear(context, width, width)

    there = form.add("Cast", "mask", to=FLOAT)
    hidden = form.add("Mul", form.add("Sub", np.float32(1), there), np.float32(-1e9))
    hidden = form.add("Unsqueeze", hidden, np.array([1, 2]))
    x = linear("x", 8, width)
    for _ in range(2):
        x = form.add("Add", x, attention(x))
        x = form.add("Add", x, linear(form.add("Relu", linear(x, width, 128)), 128, width))
    inputs = [("x", FLOAT, [1, tokens, 8]), ("mask", INT, [1, tokens])]
    form.write(path, x, inputs)
    began = time.process_time()
    source = load_source(str(path), quick=True)
    report = inspect(source)
    assert time.process_time() - began < 10
    assert (report["compared"], source.description.tokens, source.description.layers) == (
        False,
        tokens,
        2,
    )
