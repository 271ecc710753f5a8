"""ONNX graphs of several inputs: a table, a length, candidates or a second sequence."""

import re
from pathlib import Path

import numpy as np
import pytest

import celosia as library
from celosia.generators.frontend import sample_files
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.sample_files import read_labels, read_samples
from celosia.generators.studies import comparison
from celosia.generators.studies.inspection import inspect
from tests.test_onnx_forms import INT, Form, runs
from tests.test_onnx_opsets import FLOAT, onnx

SEQUENCE, TABLE, LENGTH = ("x", FLOAT, [1, 4, 6]), ("table", FLOAT, [1, 5]), ("len", INT, [1])


def pooled_table(form: Form, kind: str) -> str:
    """The tokens' mean and a table, added before a classifier."""
    mean = form.add("ReduceMean", form.block(form.linear("x", 6)), axes=[1], keepdims=0)
    return form.linear(form.add("Tanh", form.add("Add", mean, form.linear("table", 6, 5))), 3)


def last_token(form: Form, kind: str) -> str:
    """The row of the last token that is there, joined with a table."""
    places = form.add("Unsqueeze", "len", np.array([1]))
    behind = form.add("GreaterOrEqual", np.arange(4)[None], places)
    hidden = form.add("Where", behind, np.float32(-np.inf), np.float32(0))
    hidden = form.add("Unsqueeze", hidden, np.array([1, 2]))
    x = form.linear("x", 6)
    x = form.block(form.add("Tanh", x) if kind == "embedding" else x, hidden)
    place = form.add("Unsqueeze", form.add("Sub", "len", np.array(1)), np.array([1]))
    row = form.add("GatherND", x, form.add("Concat", np.array([[0]]), place, axis=-1))
    return form.linear(form.add("Concat", row, form.add("Relu", "table"), axis=1), 3, 11)


def candidates(form: Form, kind: str) -> str:
    """Scores of candidates: products of the row at a place with rows of the table of tokens."""
    words = form.rng.normal(0, 1, (9, 6)).astype(np.float32)
    x = form.block(form.add("Gather", words, "x"))
    place = form.add("Unsqueeze", "length", np.array([1]))
    place = form.add("Reshape", place, np.array([1]))
    row = form.add("Gather", x, place, axis=1)
    others = form.add("Transpose", form.add("Gather", words, "table"), perm=[0, 2, 1])
    return form.add("Squeeze", form.add("MatMul", row, others), np.array([1]))


def two_sequences(form: Form, kind: str) -> str:
    """Two sequences, each with its own embedding, joined column by column or token by token."""
    both = [form.linear("x", 6), form.linear("table", 6, 2)]
    if kind == "columns":
        return form.block(form.linear(form.add("Concat", *both, axis=2), 6, 12))
    halves = [form.add("Slice", part, *np.array([[0], [2], [1]])) for part in both]
    return form.block(form.add("Concat", *halves, axis=1))


def other_attention(form: Form, kind: str) -> str:
    """A second sequence that attends to itself, pooled and added to the first one's mean."""
    heads = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        rows = form.add("Reshape", form.linear("table", 6, 2), np.array([1, 4, 2, 3]))
        # A function that is not known hides what the product is made of.
        heads.append(form.add("Sin", form.add("Transpose", rows, perm=order)))
    shares = form.add("Hardmax", form.add("MatMul", *heads[:2]), axis=-1)
    second = form.add("Transpose", form.add("MatMul", shares, heads[2]), perm=[0, 2, 1, 3])
    second = form.add("Reshape", second, np.array([1, 4, 6]))
    means = [
        form.add("ReduceMean", x, axes=[1], keepdims=0)
        for x in (form.block(form.linear("x", 6)), second)
    ]
    return form.add("Add", *means)


def pooled_mask(form: Form, kind: str) -> str:
    """A mean over the tokens of a mask, which attention does not know."""
    there = form.add("Unsqueeze", form.add("Cast", "mask", to=FLOAT), np.array([2]))
    x = form.add("Mul", form.block(form.linear("x", 6)), there)
    total = form.add("ReduceSum", x, np.array([1]), keepdims=0)
    return form.add("Div", total, form.add("ReduceSum", there, np.array([1]), keepdims=0))


FORMS = {
    "table": (pooled_table, [SEQUENCE, TABLE], 2),
    "length": (last_token, [SEQUENCE, TABLE, LENGTH], 2),
    "embedding": (last_token, [SEQUENCE, TABLE, LENGTH], 2),
    "candidates": (
        candidates,
        [("x", INT, [1, 4]), ("table", INT, [1, 5]), ("length", INT, [1, 1])],
        2,
    ),
    "columns": (two_sequences, [SEQUENCE, ("table", FLOAT, [1, 4, 2])], 3),
    "tokens": (two_sequences, [SEQUENCE, ("table", FLOAT, [1, 4, 2])], 3),
    "mask": (pooled_mask, [SEQUENCE, ("mask", INT, [1, 4])], 2),
}


def write(path: Path, kind: str) -> Path:
    """Write the graph of a kind."""
    form, (make, inputs, axes) = Form(), FORMS[kind]
    return form.write(path, make(form, kind), inputs, axes)


@pytest.mark.parametrize("kind", FORMS)
def test_graphs_of_several_inputs_run(kind, tmp_path) -> None:
    path = write(tmp_path / "model.onnx", kind)
    source = load_onnx(path)
    others = {name for name, _, _ in FORMS[kind][1][1:]} - {"len"}
    assert set(source.named.shapes) == others
    assert inspect(source)["others"] == source.named.shapes
    report = comparison.compare(source, path)
    assert report["refused"] is None
    assert 0 < report["difference"] < comparison.NEAR
    runs(path)


@pytest.mark.parametrize("kind", ["length", "embedding"])
def test_a_length_of_a_file_cuts_each_sample(kind, tmp_path) -> None:
    path = write(tmp_path / "model.onnx", kind)
    source, rng = load_onnx(path), np.random.default_rng(2)
    x, table, lengths = rng.normal(0, 1, (3, 4, 6)), rng.normal(0, 1, (3, 5)), np.array([4, 2, 1])
    np.savez(tmp_path / "x.npz", x=x, table=table, len=lengths)
    samples = read_samples(tmp_path / "x.npz", source)
    assert [len(sample) for sample in samples] == [4, 2, 1]
    session = onnx_session(path)
    for sample, *arrays in zip(samples, x, table, lengths, strict=True):
        feeds = dict(
            zip(("x", "table"), (a[None].astype(np.float32) for a in arrays), strict=False)
        )
        (expected,) = session.run(None, feeds | {"len": arrays[2][None]})
        np.testing.assert_allclose(source.floats(sample), expected[0], rtol=1e-4, atol=1e-5)
    (tmp_path / "labels.txt").write_text("0\n2\n1\n")
    assert read_labels(tmp_path / "labels.txt", source).tolist() == [0, 2, 1]


def test_attention_of_another_input_is_no_host_step(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    form.write(path, other_attention(form, ""), FORMS["columns"][1], 2)
    with pytest.raises(ValueError, match=r"^Model .* is not run: "):
        load_onnx(path)


class Batch(Form):
    """Parts of models of a fixed batch of 2."""

    def add(self, kind: str, *inputs, **attributes) -> str:
        """Add a node."""
        if kind == "Reshape":
            inputs = (inputs[0], np.array([2, *inputs[1][1:]]))
        return super().add(kind, *inputs, **attributes)


def test_several_inputs_of_a_fixed_batch(tmp_path) -> None:
    form, path, (make, inputs, axes) = Batch(), tmp_path / "model.onnx", FORMS["table"]
    batched = [(name, kind, [2, *shape[1:]]) for name, kind, shape in inputs]
    source = load_onnx(form.write(path, make(form, "table"), batched, axes))
    assert source.named.shapes == {"table": [5]}
    report = comparison.compare(source, path)
    assert report["refused"] is None
    assert 0 < report["difference"] < comparison.NEAR


def test_a_constant_that_a_fixed_batch_repeats(tmp_path) -> None:
    form, path = Batch(), tmp_path / "model.onnx"
    places = np.repeat(form.rng.normal(0, 1, (1, 4, 6)).astype(np.float32), 2, axis=0)
    x = form.block(form.add("Add", form.linear("x", 6), places))
    source = load_onnx(form.write(path, x, [("x", FLOAT, [2, 4, 6])]))
    np.testing.assert_array_equal(source.weights["positions"], places[0])


def onnx_session(path: Path):
    """Return ONNX Runtime's session of a file."""
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_a_mask_of_a_file_cuts_each_sample(tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    hidden = form.add("Mul", form.add("Cast", "padding_mask", to=FLOAT), np.float32(-1e9))
    x = form.block(form.linear("x", 6), form.add("Unsqueeze", hidden, np.array([1, 2])))
    form.write(path, x, [SEQUENCE, ("padding_mask", onnx.TensorProto.BOOL, [1, 4])])
    source, values = load_onnx(path), np.zeros((2, 4, 6))
    holes = np.array([[0, 0, 1, 1], [0, 0, 0, 0]], bool)
    np.savez(tmp_path / "x.npz", x=values, padding_mask=holes)
    assert [len(sample) for sample in read_samples(tmp_path / "x.npz", source)] == [2, 4]
    np.savez(tmp_path / "x.npz", x=values, padding_mask=holes[:, ::-1])
    message = "Input padding_mask must be 0 for each of the 4 tokens that is there, and 1 behind"
    with pytest.raises(ValueError, match=message):
        read_samples(tmp_path / "x.npz", source)


def test_rows_of_an_output_that_belong_to_no_token(tmp_path) -> None:
    """There are as many rows as tokens, and each of them depends on the mean of all tokens."""
    form, path = Form(), tmp_path / "model.onnx"
    marks = form.add("Cast", "mask", to=FLOAT)
    hidden = form.add("Mul", form.add("Sub", np.float32(1), marks), np.float32(-1e9))
    x = form.block(form.linear("x", 6), form.add("Unsqueeze", hidden, np.array([1, 2])))
    rows = form.add("Unsqueeze", marks, np.array([2]))
    total = form.add("ReduceSum", form.add("Mul", x, rows), np.array([1]), keepdims=0)
    labels = form.add("Add", total, form.rng.normal(0, 1, (4, 1)).astype(np.float32))
    form.write(path, labels, [SEQUENCE, ("mask", INT, [1, 4])], 2)
    source, values = load_onnx(path), np.ones((4, 6), np.float32)
    feeds = {"x": values[None], "mask": np.array([[1, 1, 0, 0]])}
    (expected,) = onnx_session(path).run(None, feeds)
    np.testing.assert_allclose(source.floats(source.prepare(values[:2])), expected, rtol=1e-4)


def test_tokens_behind_their_mask_and_types(tmp_path) -> None:
    """As tf2onnx has them, in the order of their names."""
    form, path = Form(), tmp_path / "model.onnx"
    words, types = (form.rng.normal(0, 1, (size, 6)).astype(np.float32) for size in (9, 2))
    x = form.add("Add", form.add("Gather", words, "words"), form.add("Gather", types, "types"))
    hidden = form.add("Sub", np.float32(1), form.add("Cast", "mask", to=FLOAT))
    hidden = form.add("Unsqueeze", form.add("Mul", hidden, np.float32(-1e9)), np.array([1, 2]))
    inputs = [(name, INT, [1, 4]) for name in ("mask", "types", "words")]
    source = load_onnx(form.write(path, form.block(x, hidden), inputs))
    assert (source.named.first, source.named.masks) == ("words", (("mask", "mask"),))
    assert source.description.vocabulary == 9


X, ROWS = np.zeros((2, 4, 6)), np.zeros((2, 5))
WRONG = {
    "takes arrays of x, table by name, as numpy.savez writes them, not one array in": X,
    "Model model needs the input 'table'; it takes x, table and may have len": {"x": X},
    "Model model has no input 'more'; it takes x, table and": {"x": X, "table": ROWS, "more": X},
    "Input table must have the shape [5], not [4]": {"x": X, "table": ROWS[:, :4]},
    "must have as many samples of each input, not 2 of x, 1 of table": {"x": X, "table": ROWS[:1]},
    "must be finite numbers, but input 0 is not": {"x": X, "table": ROWS + np.nan},
    "Input len must be one integer from 1 to 4, not 5": {
        "x": X,
        "table": ROWS,
        "len": np.array([5, 5]),
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_files_that_do_not_fit_several_inputs(message, tmp_path) -> None:
    source = load_onnx(write(tmp_path / "model.onnx", "length"))
    values, path = (
        WRONG[message],
        tmp_path / ("x.npz" if isinstance(WRONG[message], dict) else "x.npy"),
    )
    if isinstance(values, dict):
        np.savez(path, **values)
    else:
        np.save(path, values)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_samples(path, source)


def test_integers_that_are_floats_and_damaged_files(tmp_path, monkeypatch) -> None:
    source, path = load_onnx(write(tmp_path / "model.onnx", "table")), tmp_path / "x.npz"
    with pytest.raises(library.InputError, match="model must be real numbers, not complex128"):
        source.prepare({"x": X[0], "table": ROWS[0] + 1j})
    source = load_onnx(write(tmp_path / "model.onnx", "candidates"))
    arrays = {"x": np.zeros((1, 4), int), "length": np.zeros((1, 1), int)}
    np.savez(path, **arrays, table=np.zeros((1, 5)))
    with pytest.raises(ValueError, match="Input table must be integers, not float64"):
        read_samples(path, source)
    np.savez_compressed(path, **arrays, table=np.zeros((1, 5), int))
    content = path.read_bytes()
    assert len(read_samples(path, source)) == 1
    monkeypatch.setattr(sample_files, "_MOST_BYTES", 400)
    with pytest.raises(ValueError, match=r"of different names, of at most 400 bytes together$"):
        read_samples(path, source)
    monkeypatch.undo()
    for damaged in (b"nothing", content[:-30], content[:80] + bytes(40) + content[120:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"^Inputs .* are not a NumPy array: "):
            read_samples(path, source)


def test_a_command_runs_several_inputs(celosia, tmp_path) -> None:
    path, rng = write(tmp_path / "model.onnx", "table"), np.random.default_rng(3)
    np.savez(tmp_path / "x.npz", x=rng.normal(0, 1, (4, 4, 6)), table=rng.normal(0, 1, (4, 5)))
    words = ("--config", "small", "--sim", "golden", "--json", "--output", tmp_path / "y.npy")
    code, shown, errors = celosia("run", path, "--inputs", tmp_path / "x.npz", *words)
    assert code == 0, errors
    assert '"mismatches": 0' in shown
    feeds = {name: np.load(tmp_path / "x.npz")[name].astype(np.float32) for name in ("x", "table")}
    for number, row in enumerate(np.load(tmp_path / "y.npy")):
        one = {name: array[number : number + 1] for name, array in feeds.items()}
        (expected,) = onnx_session(path).run(None, one)
        np.testing.assert_allclose(row, expected[0], atol=0.1)


def test_the_library_takes_several_inputs(tmp_path) -> None:
    model = library.load(write(tmp_path / "model.onnx", "candidates"))
    inputs = model.examples(4)
    assert {*inputs[0]} == {"x", "table", "length"}
    run = library.compile(model, library.config("small"), calibration=inputs).run(inputs)
    assert run.mismatches == 0
    for output, exact in zip(run.outputs, model.floats(inputs), strict=True):
        np.testing.assert_allclose(output, exact, atol=0.1 * np.abs(exact).max())


@pytest.mark.parametrize("window", [0, 1])
def test_a_mask_is_subtracted_from_scores(window, tmp_path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    apart = np.abs(np.arange(4)[:, None] - np.arange(4)) > window
    mask = form.add("Where", apart, np.float32(1e9), np.float32(0))
    if not window:
        mask = form.add("Mul", form.add("Cast", "padding_mask", to=FLOAT), np.float32(1e9))
        mask = form.add("Unsqueeze", mask, np.array([1, 2]))
    x = form.block(form.linear("x", 6), mask)
    next(node for node in form.nodes if mask in node.input).op_type = "Sub"
    form.write(path, x, [SEQUENCE, ("padding_mask", onnx.TensorProto.BOOL, [1, 4])])
    model = load_onnx(path).description
    assert (model.variable, model.window) == (not window, window)


def test_token_numbers_are_below_the_rows_of_their_table(tmp_path) -> None:
    """The host computes the embedding, so its table is none of the model's tensors."""
    form, path = Form(), tmp_path / "model.onnx"
    words = form.rng.normal(0, 1, (9, 6)).astype(np.float32)
    x = form.block(form.add("Tanh", form.add("Gather", words, "x")))
    source = load_onnx(form.write(path, x, [("x", INT, [1, 4])]))
    assert (source.description.vocabulary, source.vocabulary) == (0, 9)
