"""Remedies that a refusal of an ONNX graph names are followed here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from celosia.generators.frontend.sources import load_source
from tests.support.remedies import DATA, refused
from tests.test_onnx_forms import INT, Form
from tests.test_onnx_opsets import FLOAT, helper, onnx


def spoil_sparse(model: Any) -> None:
    dense = model.graph.initializer.pop(0)
    array = onnx.numpy_helper.to_array(dense).ravel()
    values = onnx.numpy_helper.from_array(array, dense.name)
    places = onnx.numpy_helper.from_array(np.arange(array.size), "places")
    sparse = helper.make_sparse_tensor(values, places, dense.dims)
    model.graph.sparse_initializer.append(sparse)


def spoil_size(model: Any) -> None:
    model.graph.initializer[0].dims[0] = -6


def spoil_bytes(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-4]


def spoil_type(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 99


def spoil_axis(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -4


def spoil_tensor(model: Any) -> None:
    shape = [1, 4, 6]
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, shape)
    model.graph.input[0].CopyFrom(sequence)


def spoil_opset(model: Any) -> None:
    model.opset_import[0].version = 6


def insert(*nodes: Any, tensors: Any = ()) -> Callable[[Any], None]:
    """Return a function that puts nodes between the input and its readers."""

    def spoil(model: Any) -> None:
        for node in model.graph.node:
            node.input[:] = ["x2" if name == "x" else name for name in node.input]
        for node in reversed(nodes):
            model.graph.node.insert(0, node)
        model.graph.initializer.extend(tensors)

    return spoil


BODY = helper.make_graph(
    [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["s"], ["t"])],
    "body",
    [
        helper.make_tensor_value_info("i", INT, []),
        helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("s", FLOAT, [1, 4, 6]),
    ],
    [
        helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("t", FLOAT, [1, 4, 6]),
    ],
)
COUNT = helper.make_tensor("n", INT, [], [2])
DROP = helper.make_tensor("on", onnx.TensorProto.BOOL, [], [True])
SPOILED: dict[str, Callable[[Any], None]] = {
    "; export the model with dense tensors": spoil_sparse,
    "has the shape [-6, 6]; export the model again": spoil_size,
    "numbers of its shape [6, 6]; export the model again": spoil_bytes,
    "has elements of the unknown type 99; export the model again": spoil_type,
    "; export the model with another one": spoil_axis,
    "; export a model that takes tensors": spoil_tensor,
    "; export it again with an opset from ": spoil_opset,
    "; export the model with its loops written out, as torch.onnx.export with dynamo=True does": (
        insert(helper.make_node("Loop", ["n", "", "x"], ["x2"], body=BODY), tensors=[COUNT])
    ),
    "; export the model after model.eval(), or leave it out": insert(
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["x2"]),
    ),
    "; export it again after model.eval()": insert(
        helper.make_node("Dropout", ["x", "", "on"], ["x2"]), tensors=[DROP]
    ),
    "; convert the model with other parts": insert(helper.make_node("Digamma", ["x"], ["x2"])),
}


@pytest.mark.parametrize("words", SPOILED)
def test_graphs_that_are_exported_again(words: str, tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    x = form.add("Add", "x", form.attention("x"))
    hidden = form.linear(x, 9)
    cubed = form.add("Mul", form.add("Pow", hidden, np.float32(3)), np.float32(0.044715))
    inner = form.add("Mul", form.add("Add", hidden, cubed), np.float32(0.7978845608))
    half = form.add("Mul", hidden, np.float32(0.5))
    gelu = form.add("Mul", half, form.add("Add", form.add("Tanh", inner), np.float32(1)))
    form.save(path, form.add("Add", x, form.linear(gelu, 6, 9)))
    good = path.read_bytes()
    model = onnx.load(str(path))
    SPOILED[words](model)
    path.write_bytes(model.SerializeToString())
    with refused(words):
        load_source(str(path))
    path.write_bytes(good)
    assert load_source(str(path)).description.activation == "gelu_tanh"


def test_tensors_in_files_beside_the_graph(tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    form.save(path, form.block("x"))
    saved = {"save_as_external_data": True, "location": "weights", "size_threshold": 0}
    whole = onnx.load(str(path))
    onnx.save(whole, str(path), **saved)
    odd = onnx.load(str(path), load_external_data=False)
    odd.graph.initializer[0].external_data.add(key="basepath", value="x")
    path.write_bytes(odd.SerializeToString())
    with refused("; save the model again"):
        load_source(str(path))
    onnx.save(whole, str(path), **saved)
    load_source(str(path))
    content = (tmp_path / "weights").read_bytes()
    (tmp_path / "weights").unlink()
    with refused(f"; put it into the folder {tmp_path}"):
        load_source(str(path))
    (tmp_path / "weights").write_bytes(content[:-4])
    with refused("; copy the file again"):
        load_source(str(path))
    (tmp_path / "weights").write_bytes(content)
    load_source(str(path))


def test_images_of_open_size_and_graphs_without_attention(tmp_path: Path) -> None:
    path = tmp_path / "vit.onnx"
    model = onnx.load(str(DATA / "zoo" / "vit_older.onnx"))
    fixed = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(model, str(path))
    with refused("; export the model with one"):
        load_source(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = fixed
    onnx.save(model, str(path))
    load_source(str(path))
    form = Form()
    form.save(path, form.add("Exp", "x"))
    with refused("; give a Transformer encoder"):
        load_source(str(path))
    form = Form()
    form.save(path, form.block("x"))
    load_source(str(path))
