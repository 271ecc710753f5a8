"""ONNX graphs of the kinds that others publish, by ONNX Runtime's numbers."""

import re
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.onnx.text import load_onnx_text
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.studies import comparison
from tests.test_onnx_forms import INT, Form, runs
from tests.test_onnx_opsets import FLOAT, agrees, helper, onnx

OPEN = [1, "tokens"]
HOLES = np.float32(-np.inf)


class Open(Form):
    """Parts of models whose number of tokens is open, of width 6."""

    def heads(self, x: str, perm: list[int], past: str = "") -> str:
        """Add a projection by head; its rows are behind those of ``past``."""
        x = self.add("Reshape", self.linear(x, 6), np.array([1, -1, 2, 3]))
        x = self.add("Transpose", x, perm=[0, 2, 1, 3])
        x = self.add("Concat", past, x, axis=-2) if past else x
        return x if perm == [0, 1, 2, 3] else self.add("Transpose", x, perm=perm)

    def attention(self, x: str, mask: str = "", past: tuple[str, str] = ("", "")) -> str:
        """Add an attention with two heads of all tokens."""
        plain, turned = [0, 1, 2, 3], [0, 1, 3, 2]
        query = self.heads(x, plain)
        key, value = self.heads(x, turned, past[0]), self.heads(x, plain, past[1])
        scores = self.add("Mul", self.add("MatMul", query, key), np.float32(0.5))
        scores = self.add("Add", scores, mask) if mask else scores
        context = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        context = self.add("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", context, np.array([1, -1, 6])), 6)

    def count(self, ids: str = "ids") -> str:
        """Add the number of tokens."""
        return self.add("Gather", self.add("Shape", ids), np.array([1]))

    def upto(self, count: str, table, axes: list[int]) -> str:
        """Add the first rows of a table, as many as there are tokens."""
        x = self.add("Slice", table, np.array([0]), count, np.array(axes[:1]))
        return self.upto(count, x, axes[1:]) if axes[1:] else x

    def table(self, *shape: int):
        """Return random numbers."""
        return self.rng.normal(0, 1, shape).astype(np.float32)

    def norm(self, x: str) -> str:
        """Add a LayerNorm."""
        return self.add("LayerNormalization", x, self.table(6), epsilon=1e-5)


def decoder(path: Path, placement: str, *, final: bool = True, places: int = 9) -> Path:
    """Write a decoder of any number of tokens, up to its ``places``, if it has a table of them."""
    form = Open()
    x, count = form.add("Gather", form.table(20, 6), "ids"), form.count()
    if places:
        x = form.add("Add", x, form.upto(count, form.table(1, places, 6), [1]))
    later = form.upto(count, np.triu(np.full((12, 12), HOLES), 1), [0, 1])
    for _ in range(2):
        for part in (lambda x: form.attention(x, later), form.mlp):
            if placement == "pre":
                x = form.add("Add", x, part(form.norm(x)))
            else:
                x = form.norm(form.add("Add", x, part(x)))
    x = form.norm(x) if final else x
    return form.write(path, form.linear(x, 20), [("ids", INT, OPEN)])


def agrees_as_text(path: Path) -> None:
    """Compare the import with ONNX Runtime's own run of the file."""
    report = comparison.compare(load_text(str(path)), path)
    assert report["refused"] is None
    assert 0 < report["difference"] < comparison.NEAR


@pytest.mark.parametrize(("placement", "final"), [("pre", True), ("post", False), ("post", True)])
def test_decoders_are_as_long_as_their_table_of_places(placement, final, tmp_path) -> None:
    path = decoder(tmp_path / "model.onnx", placement, final=final)
    agrees_as_text(path)
    model, _ = load_onnx_text(path)
    assert (model.positions, model.placement, model.final_norm) == (9, placement, final)
    runs(path)
    with pytest.raises(ValueError, match=f"run it with: celosia run {re.escape(str(path))}$"):
        load_source(str(path))


def test_a_decoder_without_an_end_is_refused(tmp_path) -> None:
    path = decoder(tmp_path / "model.onnx", "pre", places=0)
    message = (
        f"Input ids in {path} has no fixed number of tokens, and no table of positions ends; "
        "export the model with a fixed number of tokens"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_text(str(path))
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    onnx.save(model, str(path))
    agrees_as_text(path)
    assert load_text(str(path)).description.positions == 5


def test_keys_and_values_of_earlier_tokens_are_none(tmp_path) -> None:
    form, path = Open(), tmp_path / "model.onnx"
    count = form.count()
    words, places = form.table(20, 6), form.table(7, 6)
    x = form.add(
        "Add", form.add("Gather", words, "ids"), form.add("Gather", places, "position_ids")
    )
    hidden = form.add("Sub", np.float32(1), form.add("Cast", "attention_mask", to=FLOAT))
    hidden = form.add("Unsqueeze", form.add("Mul", hidden, np.float32(-1e9)), np.array([1, 2]))
    later = form.upto(count, np.triu(np.full((8, 8), np.float32(-1e9)), 1), [0, 1])
    attended = form.attention(
        form.norm(x), form.add("Add", hidden, later), ("past.key", "past.value")
    )
    x = form.add("Add", x, attended)
    x = form.add("Add", x, form.mlp(form.norm(x)))
    past = [(f"past.{kind}", FLOAT, [1, 2, "past", 3]) for kind in ("key", "value")]
    rest = [("attention_mask", INT, [1, "all"]), ("position_ids", INT, OPEN)]
    form.write(path, form.linear(form.norm(x), 20), [("ids", INT, OPEN), *past, *rest])
    agrees_as_text(path)
    assert load_text(str(path)).description.positions == 7
    runs(path)


def test_a_length_that_nodes_fix(tmp_path) -> None:
    form, path = Open(), tmp_path / "model.onnx"
    x = form.add("Reshape", form.linear("x", 6), np.array([-1, 5, 6]))
    form.write(path, form.add("Add", x, form.attention(x)), [("x", FLOAT, [1, "tokens", 6])])
    form.nodes[-1].output[0] = "sum"
    form.write(path, form.add("Add", "sum", form.mlp("sum")), [("x", FLOAT, [1, "tokens", 6])])
    message = f"Model {path} is made for 5 tokens, not 4; give it with --context 5"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_onnx(path, 4)
    source = load_onnx(path, 5)
    assert source.description.tokens == 5
    assert comparison.compare(source, path, 5)["difference"] < comparison.NEAR


def test_outputs_that_are_inputs_handed_on(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    x = form.block(form.linear("x", 6))
    form.nodes.append(helper.make_node("Identity", ["x"], ["same"]))
    form.write(path, x, [("x", FLOAT, [1, 4, 6])])
    model = onnx.load(str(path))
    model.graph.output.insert(0, helper.make_tensor_value_info("same", FLOAT, [1, 4, 6]))
    onnx.save(model, str(path))
    source = load_onnx(path)
    assert source.unused == ("output same",)
    assert comparison.compare(source, path)["difference"] < comparison.NEAR
    runs(path)


def pooled(form: Form, x: str, rows: int) -> str:
    """Add the attention of one learned query with two heads: of each group of ``rows`` tokens."""
    query = form.rng.normal(0, 1, (1, 2, 1, 3)).astype(np.float32)
    turned = form.add("Reshape", form.linear(x, 6), np.array([-1, rows, 2, 3]))
    key = form.add("Transpose", turned, perm=[0, 2, 3, 1])
    value = form.add("Reshape", form.linear(x, 6), np.array([-1, rows, 2, 3]))
    value = form.add("Transpose", value, perm=[0, 2, 1, 3])
    shares = form.add("Softmax", form.add("MatMul", query, key), axis=-1)
    context = form.add("Transpose", form.add("MatMul", shares, value), perm=[0, 2, 1, 3])
    return form.linear(form.add("Reshape", context, np.array([1, -1, 6])), 6)


@pytest.mark.parametrize("inner", [True, False])
def test_tokens_are_pooled_by_learned_queries(inner, tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    x = form.norm(pooled(form, form.linear("x", 6), 3))
    x = pooled(form, form.norm(form.block(x, norm=form.norm) if inner else form.block(x)), 4)
    form.write(
        path, form.add("Reshape", form.linear(x, 1), np.array([1])), [("x", FLOAT, [1, 12, 6])], 1
    )
    source = load_onnx(path)
    assert [step.name for step in (*source.before, *source.after)] == ["embedding", "head"]
    assert "Softmax" in source.before[0].what
    assert "Softmax" in source.after[0].what
    assert comparison.compare(source, path)["difference"] < comparison.NEAR
    runs(path)


def test_a_head_that_takes_the_shape_of_the_input(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    x = form.add("Transpose", form.block(form.linear("x", 6)), perm=[0, 2, 1])
    x = form.add("Conv", x, form.rng.normal(0, 1, (2, 6, 3)).astype(np.float32))
    size = form.add("Gather", form.add("Shape", "x"), np.array([0, 2, 1]))
    shape = form.add("Div", size, np.array([1, 3, 1]))
    x = form.add("Resize", x, "", "", shape, mode="nearest")
    form.write(path, x, [("x", FLOAT, [1, 4, 6])])
    source = load_onnx(path)
    assert comparison.compare(source, path)["difference"] < comparison.NEAR
    runs(path)


class Keras(Form):
    """Parts of models as Keras exports them, of width 6 on 4 tokens."""

    def norm(self, x: str, *, gains: bool = True, less: bool = False) -> str:
        """Add a LayerNorm written with moments."""
        mean = self.add("GlobalAveragePool", x)
        apart = self.add("Sub", x, mean)
        spread = self.add("GlobalAveragePool", self.add("Mul", apart, apart))
        spread = self.add("Sqrt", self.add("Add", spread, np.float32(1e-3)))
        scale = self.add("Reciprocal", spread)
        gamma, beta = self.rng.uniform(0.5, 2, (2, 1, 1, 6)).astype(np.float32)
        scale = self.add("Mul", scale, gamma) if gains else scale
        if less:
            behind = self.add("Sub", beta, self.add("Mul", mean, scale))
        else:
            behind = self.add("Add", self.add("Mul", self.add("Neg", mean), scale), beta)
        return self.add("Add", self.add("Mul", x, scale), behind)

    def attention(self, x: str) -> str:
        """Add an attention whose products are those of keys and queries."""
        value, query, key = (
            self.add("Reshape", self.linear(x, 6), np.array([-1, 4, 2, 3])) for _ in range(3)
        )
        query = self.add("Transpose", self.add("Mul", query, np.float32(0.5)), perm=[0, 2, 3, 1])
        key, value = (self.add("Transpose", tensor, perm=[0, 2, 1, 3]) for tensor in (key, value))
        weights = self.add("Softmax", self.add("MatMul", key, query), axis=2)
        weights = self.add("Transpose", weights, perm=[0, 1, 3, 2])
        context = self.add("Transpose", self.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", context, np.array([-1, 4, 6])), 6)


@pytest.mark.parametrize("form", [{}, {"gains": False}, {"less": True}])
def test_attention_and_norms_as_keras_writes_them(form, tmp_path) -> None:
    keras, path = Keras(), tmp_path / "model.onnx"
    x = keras.linear("x", 6)
    x = keras.add("Add", x, keras.attention(keras.norm(x, **form)))
    x = keras.norm(keras.add("Add", x, keras.mlp(keras.norm(x))))
    x = keras.linear(keras.add("ReduceMean", x, axes=[1], keepdims=0), 3)
    keras.write(path, x, [("x", FLOAT, [1, 4, 6])], 2)
    source = load_onnx(path)
    assert source.description.final_norm
    assert not source.after
    assert comparison.compare(source, path)["difference"] < comparison.NEAR
    runs(path)


def test_norms_of_moments_that_are_no_norms_are_not_run(tmp_path) -> None:
    form, path = Keras(), tmp_path / "model.onnx"
    x = form.linear("x", 6)
    x = form.norm(form.add("Add", x, form.attention(x)))
    place = next(number for number, node in enumerate(form.nodes) if node.op_type == "Neg")
    form.nodes[place].op_type = "Identity"
    form.write(path, form.add("Add", x, form.attention(x)), [("x", FLOAT, [1, 4, 6])])
    with pytest.raises(ValueError, match="it adds parts that are no whole norm"):
        load_onnx(path)


def test_parts_of_two_norms_are_not_one(tmp_path) -> None:
    form, path = Keras(), tmp_path / "model.onnx"
    x = form.linear("x", 6)
    first = form.norm(x)
    behind = form.nodes[-1].input[1]
    second = form.norm(x)
    form.nodes[-1].input[1] = behind
    x = form.add("Add", x, form.attention(form.add("Add", first, second)))
    form.write(path, form.add("Add", x, form.mlp(x)), [("x", FLOAT, [1, 4, 6])])
    with pytest.raises(ValueError, match=r"\): it adds parts of different norms[;)]"):
        load_onnx(path)


def gelu(form: Form, x: str, kind: str) -> str:
    """Add GELU by a function that ONNX lacks, by ``1 - Erf`` or by the approximation by tanh."""
    if kind == "tanh":
        cube = form.add("Mul", form.add("Pow", x, np.float32(3)), np.float32(0.044715))
        inner = form.add("Mul", form.add("Add", x, cube), np.float32(0.7978845608))
        share = form.add("Add", form.add("Tanh", inner), np.float32(1))
    else:
        share = form.add(kind, form.add("Mul", form.add("Neg", x), np.float32(0.70710678)))
    if kind == "Erf":
        share = form.add("Sub", np.float32(1), share)
    return form.add("Mul", form.add("Mul", np.float32(0.5), x), share)


def test_functions_that_onnx_lacks(tmp_path) -> None:
    """Keras' Erfc, which converters leave in a graph, is ``1 - Erf``; others are refused."""
    sources = {}
    for kind in ("Erf", "Erfc", "tanh", "Digamma"):
        form, path = Form(), tmp_path / f"{kind}.onnx"
        x = form.add("Add", "x", form.attention("x"))
        x = form.add("Add", x, form.linear(gelu(form, form.linear(x, 9), kind), 6, 9))
        form.write(path, x, [("x", FLOAT, [1, 4, 6])])
        if kind == "Digamma":
            node = next(node.name for node in form.nodes if node.op_type == kind)
            message = (
                f"Node {node} in {path} is of the kind Digamma, which ONNX does not have; convert "
                "the model with other parts"
            )
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                load_onnx(path)
            continue
        sources[kind] = load_onnx(path)
        if kind != "Erfc":
            agrees(path)
    assert [source.description.activation for source in sources.values()] == [
        *("gelu", "gelu", "gelu_tanh"),
    ]
    values = sources["Erf"].random(np.random.default_rng(1))
    exact, same = (sources[kind].floats(values) for kind in ("Erf", "Erfc"))
    np.testing.assert_allclose(same, exact, rtol=1e-6)
