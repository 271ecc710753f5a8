"""The token of padding in inputs of encoders that give the tokens behind it other positions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import load_source
from tests.test_onnx_forms import FLOAT, INT, Form, onnx, runtime
from tests.test_reference_edits import BASES
from tools import folder_edits as edits

PADDING = 3


def encoder(folder: Path, name: str) -> Source:
    base = BASES[name]
    tensors = edits.tensors_of(base["shapes"])
    edits.write(folder, {**base["config"], "pad_token_id": PADDING}, tensors)
    return load_source(str(folder))


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "CamembertForQuestionAnswering"])
def test_padding_is_refused_where_positions_depend_on_it(tmp_path: Path, name: str) -> None:
    source = encoder(tmp_path / "model", name)
    for inputs in (np.array([5, PADDING, 6]), np.array([[5, 0], [PADDING, 0]])):
        with pytest.raises(InputError) as caught:
            source.prepare(inputs)
        assert str(caught.value) == (
            f"Inputs of model model must be without its padding, token {PADDING}, which it does "
            "not take for a token; leave it out"
        )
    source.prepare(np.array([5, 6]))


def test_random_inputs_have_every_token_but_padding(tmp_path: Path) -> None:
    source, rng = encoder(tmp_path / "model", "RobertaForMaskedLM"), np.random.default_rng(0)
    drawn = np.concatenate([source.random(rng) for _ in range(20)])
    assert {*drawn.tolist()} == {*range(source.description.vocabulary)} - {PADDING}


def test_padding_is_a_token_as_any_other_in_bert(tmp_path: Path) -> None:
    source = encoder(tmp_path / "model", "BertForMaskedLM")
    assert source.prepare(np.array([5, PADDING, 6])).tolist() == [5, PADDING, 6]


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("Greater", ["x", np.array(0)], {}),
        ("Less", [np.array(0), "x"], {}),
        ("GreaterOrEqual", ["x", np.array(1)], {}),
        ("LessOrEqual", [np.array(1), "x"], {}),
        ("Cast", ["x"], {"to": onnx.TensorProto.BOOL}),
    ],
)
def test_a_graph_that_masks_token_0(kind, inputs, attributes, tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    table = form.rng.normal(0, 1, (7, 6)).astype(np.float32)
    hidden = form.add("Cast", form.add("Not", form.add(kind, *inputs, **attributes)), to=FLOAT)
    mask = form.add("Unsqueeze", form.add("Mul", hidden, np.float32(-1e9)), np.array([1, 2]))
    form.write(path, form.block(form.add("Gather", table, "x"), mask), [("x", INT, [1, 4])])
    source = load_source(str(path))
    assert (source.padding, source.description.variable) == (0, True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": np.array([[1, 2, 0, 0]])})
    np.testing.assert_allclose(source.floats(np.array([1, 2])), expected[0, :2], rtol=1e-4)


def test_a_graph_that_masks_its_padding(tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    table = form.rng.normal(0, 1, (7, 6)).astype(np.float32)
    masked = form.add("Cast", form.add("Equal", "x", np.array(PADDING)), to=FLOAT)
    mask = form.add("Unsqueeze", form.add("Mul", masked, np.float32(-1e9)), np.array([1, 2]))
    output = form.block(form.add("Gather", table, "x"), mask)
    form.write(path, output, [("x", INT, [1, 4])])
    source = load_source(str(path))
    with pytest.raises(InputError, match=f"must be without its padding, token {PADDING}, which it"):
        source.prepare(np.array([1, PADDING, 2, 5]))
    # As the sentence says: those without it are as they are behind a mask.
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": np.array([[1, 2, PADDING, PADDING]])})
    embedded = source.floats(source.prepare(np.array([1, 2])))
    np.testing.assert_allclose(embedded, expected[0, :2], rtol=1e-4, atol=1e-5)
    # Of an input of any rank each number is a token.
    several = replace(source, shape=(2, 2))
    with pytest.raises(InputError, match=f"must be without its padding, token {PADDING}, which it"):
        several.check(np.array([[[1, PADDING], [2, 5]]]))
