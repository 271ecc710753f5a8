"""Every remedy that is named for an ONNX graph is followed here."""

import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.studies import comparison
from tests.test_onnx_forms import INT, Form
from tests.test_onnx_opsets import FLOAT, agrees, helper, onnx

THINGS = read_table(TABLES / "refused_onnx.toml")
ZOO = Path(__file__).parent / "data" / "zoo"


def recurrent(kind: str, gates: int):
    """Return a function that puts a recurrent layer, or a block, between blocks."""

    def make(form: Form, good: bool) -> str:
        x = form.block("x")
        if good:
            return form.block(form.block(x))
        weights = form.rng.normal(0, 1, (1, gates * 6, 6)).astype(np.float32)
        steps = form.add("Transpose", x, perm=[1, 0, 2])
        states = form.add(kind, steps, weights, weights, hidden_size=6)
        states = form.add("Squeeze", states, np.array([1]))
        return form.block(form.add("Transpose", states, perm=[1, 0, 2]))

    return make


def integers(form: Form, good: bool) -> str:
    """Numbers between blocks that were made integers, or not."""
    scale = np.float32(0.1), np.int8(0)
    x = form.block("x")
    x = x if good else form.add("QuantizeLinear", x, *scale)
    x = x if good else form.add("DequantizeLinear", x, *scale)
    return form.block(x)


def turned(form: Form, x: str) -> str:
    """Return columns turned as rotary positions turn them."""
    low, high = (form.add("Slice", x, *np.array([[at], [at + 3], [2]])) for at in (0, 3))
    half = form.add("Concat", form.add("Neg", high), low, axis=-1)
    tables = form.rng.normal(0, 1, (2, 4, 6)).astype(np.float32)
    return form.add("Add", form.add("Mul", x, tables[0]), form.add("Mul", half, tables[1]))


def rotary(form: Form, good: bool) -> str:
    """Positions that are turned, or learned."""
    learned = form.rng.normal(0, 1, (4, 6)).astype(np.float32)
    x = form.add("Add", "x", learned) if good else "x"
    x = form.add("Add", x, form.attention(x if good else turned(form, x)))
    return form.add("Add", x, form.mlp(x))


def branch(form: Form, good: bool) -> str:
    """A branch on the data, or the one that is to run."""
    x = form.block("x")
    if good:
        return form.add("Neg", x)
    ways = [
        helper.make_graph(
            [helper.make_node(kind, [x], [f"{kind}_out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}_out", FLOAT, [1, 4, 6])],
        )
        for kind in ("Neg", "Abs")
    ]
    total = form.add("ReduceSum", x, keepdims=0)
    which = form.add("Greater", total, np.float32(0))
    chosen = form.add("If", which, then_branch=ways[0], else_branch=ways[1])
    return form.block(chosen)


def selection(form: Form, good: bool) -> str:
    """The largest of each row in front of a block, or nothing."""
    x = form.block("x")
    if not good:
        form.nodes.append(helper.make_node("TopK", [x, "six"], ["top", "places"], name="top"))
        form.known["six"] = np.array([6])
        x = "top"
    return form.block(x)


def fused(form: Form, good: bool) -> str:
    """Attention as a node of ONNX Runtime's own, or itself."""
    if good:
        return form.block("x")
    parts = [form.linear("x", 6) for _ in range(3)]
    attended = form.add("MultiHeadAttention", *parts, num_heads=2, domain="com.microsoft")
    x = form.add("Add", "x", form.linear(attended, 6))
    return form.add("Add", x, form.mlp(x))


def fused_product(form: Form, good: bool) -> str:
    """Scores as one node that multiplies and scales, as ONNX Runtime's optimizer writes it."""
    if good:
        return form.block("x")
    query, key, value = (form.linear("x", 6) for _ in range(3))
    scores = form.add(
        "FusedMatMul", query, key, domain="com.microsoft", alpha=6**-0.5, transB=1, transA=0
    )
    x = form.add("MatMul", form.add("Softmax", scores, axis=-1), value)
    x = form.add("Add", "x", form.linear(x, 6))
    return form.add("Add", x, form.mlp(x))


def epsilon(form: Form, good: bool) -> str:
    """A norm with an epsilon, or without."""
    gains = np.ones(6, np.float32)
    return form.block(
        "x",
        norm=lambda x: form.add("LayerNormalization", x, gains, epsilon=1e-5 if good else 0.0),
    )


def batch_norm(form: Form, good: bool) -> str:
    """A batch norm whose branch ends with a linear layer, or with a function."""
    x = form.batch_norm(form.linear("x", 6))
    x = form.batch_norm(form.add("Add", x, form.attention(x)))
    hidden = form.add("Relu", form.linear(x, 6))
    return form.add("Add", x, form.linear(hidden, 6) if good else hidden)


def other_sequence(form: Form, good: bool) -> str:
    """Keys and values of the input itself, attended to by a block, or the encoder alone."""
    x = form.block("x")
    if good:
        return x
    heads = [form.linear(source, 6) for source in (x, "x", "x")]
    scores = form.add("MatMul", heads[0], form.add("Transpose", heads[1], perm=[0, 2, 1]))
    context = form.add("MatMul", form.add("Softmax", scores, axis=-1), heads[2])
    x = form.add("Add", x, form.linear(context, 6))
    return form.add("Add", x, form.mlp(x))


def changed(form: Form, good: bool) -> str:
    """Data that are added to scores, or nothing."""
    mask = form.add("Unsqueeze", form.linear("x", 4), np.array([1]))
    return form.block("x", "" if good else mask)


def relative(form: Form, good: bool) -> str:
    """Positions in the scores, or in the embedding."""
    form.known["bias"] = form.rng.normal(0, 1, (1, 2, 4, 4)).astype(np.float32)
    learned = form.rng.normal(0, 1, (4, 6)).astype(np.float32)
    return form.block(form.add("Add", "x", learned), "" if good else "bias")


def window(form: Form, good: bool) -> str:
    """A mask of neighbours without one key, which is no window, or no mask."""
    apart = np.abs(np.arange(4)[:, None] - np.arange(4)) > 1
    apart[2, 1] = True
    form.known["near"] = np.where(apart, -1e9, 0).astype(np.float32)
    return form.block("x", "" if good else "near")


def apart(form: Form, good: bool) -> str:
    """Two halves of the tokens that attend apart, or all tokens."""
    if good:
        return form.block("x")
    query, key, value = (
        form.add("Reshape", form.linear("x", 6), np.array([2, 2, 6])) for _ in range(3)
    )
    scores = form.add("MatMul", query, form.add("Transpose", key, perm=[0, 2, 1]))
    context = form.add("MatMul", form.add("Softmax", scores, axis=-1), value)
    context = form.add("Reshape", context, np.array([1, 4, 6]))
    x = form.add("Add", "x", form.linear(context, 6))
    return form.add("Add", x, form.mlp(x))


def across(form: Form, good: bool) -> str:
    """An MLP across the tokens, or across the columns of each."""
    x = form.add("Add", "x", form.attention("x"))
    if good:
        return form.add("Add", x, form.mlp(x))
    mixed = form.linear(form.add("Transpose", x, perm=[0, 2, 1]), 4, 4)
    mixed = form.linear(form.add("Relu", mixed), 4, 4)
    return form.add("Add", x, form.add("Transpose", mixed, perm=[0, 2, 1]))


def gate(form: Form, good: bool) -> str:
    """An MLP with a gate, or without."""
    x = form.add("Add", "x", form.attention("x"))
    if good:
        return form.add("Add", x, form.mlp(x))
    both = form.add("Mul", form.linear(x, 9), form.add("Relu", form.linear(x, 9)))
    return form.add("Add", x, form.linear(both, 6, 9))


def unlike(form: Form, good: bool) -> str:
    """A block without an MLP in front of one with it, or two alike."""
    return form.block(form.block("x") if good else form.add("Tanh", form.attention("x")))


def normalized(place: int):
    """Return a function that normalizes queries or keys in front of their product, or does not."""

    def make(form: Form, good: bool) -> str:
        heads = [form.linear("x", 6) for _ in range(3)]
        if not good:
            gains = np.ones(6, np.float32)
            heads[place] = form.add("LayerNormalization", heads[place], gains)
        scores = form.add("MatMul", heads[0], form.add("Transpose", heads[1], perm=[0, 2, 1]))
        context = form.add("MatMul", form.add("Softmax", scores, axis=-1), heads[2])
        x = form.add("Add", "x", form.linear(context, 6))
        return form.add("Add", x, form.mlp(x))

    return make


def function(form: Form, good: bool) -> str:
    """An activation that is listed, or another one."""
    x = form.add("Add", "x", form.attention("x"))
    hidden = form.add("Tanh" if good else "Exp", form.linear(x, 9))
    return form.add("Add", x, form.linear(hidden, 6, 9))


def activations(form: Form, good: bool) -> str:
    """Two blocks of one activation, or of two."""
    x = form.block("x")
    x = form.add("Add", x, form.attention(x))
    hidden = form.add("Relu" if good else "Tanh", form.linear(x, 7))
    return form.add("Add", x, form.linear(hidden, 6, 7))


def kinds(form: Form, good: bool) -> str:
    """Norms of one epsilon, or of two."""
    gains, epsilons = np.ones(6, np.float32), iter((1e-5, 1e-5 if good else 1e-3))
    return form.block(
        "x", norm=lambda x: form.add("LayerNormalization", x, gains, epsilon=next(epsilons))
    )


def constants(form: Form, good: bool) -> str:
    """Keys and values that are constants, or the encoder alone."""
    if good:
        return form.block("x")
    weights = form.rng.normal(0, 1, (2, 6, 5)).astype(np.float32)
    shares = form.add("Softmax", form.add("MatMul", "x", weights[0]), axis=-1)
    x = form.add("Add", "x", form.add("MatMul", shares, weights[1].T))
    return form.add("Add", x, form.mlp(x))


def no_block(form: Form, good: bool) -> str:
    """A layer alone, or the encoder with its head."""
    return form.linear(form.block("x") if good else "x", 6)


MAKE = {
    "lstm": recurrent("LSTM", 4),
    "gru": recurrent("GRU", 3),
    "rnn": recurrent("RNN", 1),
    "integers": integers,
    "rotary": rotary,
    "branch": branch,
    "selection": selection,
    "fused_attention": fused,
    "fused_nodes": fused_product,
    "epsilon_reason": epsilon,
    "batch_norm_reason": batch_norm,
    "cross_reason": other_sequence,
    "relative_reason": relative,
    "mask_reason": window,
    "data_reason": changed,
    "apart_reason": apart,
    "tokens_reason": across,
    "gate_reason": gate,
    "unlike_reason": unlike,
    "query_reason": normalized(0),
    "key_reason": normalized(1),
    "function_reason": function,
    "shape_reason": activations,
    "norms_reason": kinds,
    "constants_reason": constants,
    "end_reason": no_block,
}


@pytest.mark.parametrize("name", MAKE)
def test_the_remedy_leads_to_a_model_that_is_run(name, tmp_path) -> None:
    thing, path = THINGS[name], tmp_path / "model.onnx"
    form = Form()
    form.save(path, MAKE[name](form, False))
    model = onnx.load(str(path))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, str(path))
    message = f"Model {path} is not run: it holds {thing['thing']}; {thing['remedy']}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} "):
        load_onnx(path)
    form = Form()
    agrees(form.save(path, MAKE[name](form, True)))


def test_another_input_is_joined_in_front_of_the_blocks(tmp_path) -> None:
    path, inputs = tmp_path / "model.onnx", [("x", FLOAT, [1, 4, 6]), ("table", FLOAT, [1, 5])]
    for good in (False, True):
        form = Form()
        x = form.block("x") if not good else "x"
        x = form.add("Add", x, form.linear("table", 6, 5))
        form.write(path, form.block(form.block(x) if good else x), inputs)
        if not good:
            thing = THINGS["between_reason"]
            message = f"Model {path} is not run: it holds {thing['thing']}; {thing['remedy']} "
            with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
                load_onnx(path)
    report = comparison.compare(load_onnx(path), path)
    assert 0 < report["difference"] < comparison.NEAR
    assert {*MAKE, "between_reason"} == {*THINGS}


def test_the_folder_in_place_of_rotary_positions() -> None:
    assert load_text(str(ZOO / "0_LlamaForCausalLM")).description.position == "rotary"


def test_all_that_stands_in_the_way_is_named(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    scale = np.float32(0.1), np.int8(0)
    x = form.add("QuantizeLinear", selection(form, False), *scale)
    form.save(path, form.block(form.add("DequantizeLinear", x, *scale)))
    message = r"it holds integers already; .* and it holds a selection by data; leave"
    with pytest.raises(ValueError, match=message):
        load_onnx(path)


def test_a_branch_is_named_beside_a_length_that_is_open(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    form.write(path, branch(form, False), [("x", FLOAT, [1, "n", 6])])
    message = (
        f"Input x in {path} has no fixed number of tokens; give it with --context; and it holds a "
        "branch that depends on data; export the one branch that is to run"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda form: form.add("MatMul", np.ones(4, np.float32), "x"),
            "it does not multiply data by a constant or by data",
        ),
        (
            lambda form: form.add("Unsqueeze", form.add("CastLike", "mask", "x"), np.array([2])),
            "it makes a mask or a constant like something else",
        ),
        (
            lambda form: form.add("Gather", "x", "mask", axis=1),
            "it moves data to places that are not known",
        ),
        (
            lambda form: form.add("Cast", form.add("Equal", "x", form.add("Neg", "x")), to=FLOAT),
            "it compares something else than token numbers with one number",
        ),
        (lambda form: form.add("ReduceMean", "x"), "it reduces axes that are not known"),
        (
            lambda form: form.add(
                "Slice",
                form.block(form.add("Tanh", form.attention("x"))),
                *np.array([[1], [3], [1]]),
            ),
            "the output takes some of the tokens of node n",
        ),
    ],
)
def test_reasons_of_nodes_are_named(make, reason, tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    form.write(path, make(form), [("x", FLOAT, [1, 4, 6]), ("mask", INT, [1, 4])])
    with pytest.raises(
        ValueError, match=rf"^Model {re.escape(str(path))} is not run: .*[ (]{reason}"
    ):
        load_onnx(path)
