"""ONNX files of others: incomplete or endless ones are refused before any work."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx import file
from celosia.generators.frontend.onnx.file import read_model
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.onnx.reading import stamp
from tests.test_onnx_forms import Form

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
helper, FLOAT, INT = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def refused(message: str, path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_onnx(path)


def save(path: Path, nodes, tensors=(), inputs=None, outputs=("y",), functions=()) -> Path:
    """Write a graph as it is, with any content."""
    declared = inputs or [helper.make_tensor_value_info("x", FLOAT, [1, 4, 6])]
    made = [helper.make_tensor_value_info(name, FLOAT, [None] * 3) for name in outputs]
    graph = helper.make_graph(nodes, "graph", declared, made, list(tensors))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
    path.write_bytes(model.SerializeToString())
    return path


def raw(name: str, kind: int, dims: list[int], data: bytes):
    """Return a tensor whose header is not compared with its bytes."""
    return onnx.TensorProto(name=name, data_type=kind, dims=dims, raw_data=data)


ADD = helper.make_node("Add", ["x", "w"], ["y"], name="add")
RELU = helper.make_node("Relu", ["x"], ["y"], name="relu")


@pytest.mark.parametrize(
    ("kind", "dims", "data"),
    [
        (FLOAT, [1 << 40], bytes(4)),
        (FLOAT, [2, 3], bytes(20)),
        (onnx.TensorProto.FLOAT8E4M3FN, [6], bytes(5)),
        (onnx.TensorProto.INT4, [1 << 44], bytes(5)),
        (onnx.TensorProto.UNDEFINED, [6], bytes(24)),
    ],
)
def test_sizes_of_tensors_are_those_of_their_headers(kind, dims, data, tmp_path) -> None:
    path = save(tmp_path / "model.onnx", [ADD], [raw("w", kind, dims, data)])
    count = int(np.prod(dims, dtype=object))
    message = f"Tensor w in {path} does not hold the {count} numbers of its shape {dims}; export "
    refused(message + "the model again", path)


def test_a_tensor_of_a_negative_size(tmp_path) -> None:
    path = save(tmp_path / "model.onnx", [ADD], [raw("w", FLOAT, [-1], bytes(24))])
    refused(f"Tensor w in {path} has the shape [-1]; export the model again", path)


def outside(path: Path, location: str, **entries: str) -> Path:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[6])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return save(path, [ADD], [tensor])


def test_files_of_tensors(tmp_path) -> None:
    (folder := tmp_path / "model").mkdir()
    (tmp_path / "secret").write_bytes(bytes(24))
    path = folder / "model.onnx"
    start = f"Tensor w of {path} is in the file "
    outside(path, "model.onnx.data")
    message = f"{start}model.onnx.data, which is missing; put it into the folder {folder}"
    refused(message, path)
    (folder / "model.onnx.data").write_bytes(bytes(8))
    message = f"{start}model.onnx.data, which ends after 8 bytes; copy the file again"
    refused(message, path)
    (folder / "linked").symlink_to(tmp_path / "secret")
    for name in ("../secret", "linked", str(tmp_path / "secret"), "/dev/zero"):
        outside(path, name)
        message = f"File {path} names {name!r}, which is not in its folder; copy it into {folder}"
        refused(message, path)
    os.mkfifo(folder / "pipe")
    outside(path, "pipe")
    message = f"{folder / 'pipe'}: it is a pipe; save its content to a file"
    refused(f"Cannot read {message}", path)
    refused(f"Cannot read ONNX file {message}", folder / "pipe")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": "20"}, "Tensor w in m.onnx does not hold the 6 numbers of its shape [6]; ex"),
        ({"length": "28"}, "Tensor w in m.onnx does not hold the 6 numbers of its shape [6]; ex"),
        ({"offset": "-4"}, "Tensor w of m.onnx is in the file data with offset '-4'; save the mo"),
        ({"compression": "zip"}, "is in the file data with compression 'zip'; save the model ag"),
        ({"checksum": "0"}, "is in the file data, which has another checksum; copy the file aga"),
    ],
)
def test_entries_of_files_of_tensors(entries, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").write_bytes(bytes(32))
    with pytest.raises(InputError, match=re.escape(message)):
        load_onnx(outside(Path("m.onnx"), "data", **entries))


def test_files_of_tensors_have_at_most_2_gib(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(file, "_MOST_NUMBERS", 5)
    path = outside(tmp_path / "m.onnx", "missing")
    message = f"Model {path} has 6 numbers in other files, of at most 5; give its Hugging Face "
    refused(message + "folder", path)


def test_files_of_tensors_are_read_again_if_they_change(tmp_path) -> None:
    """The numbers of a tensor may be before others, behind a link, and in a function."""
    path, data = tmp_path / "m.onnx", np.arange(8, dtype=np.float32)
    data.tofile(tmp_path / "blob")
    (tmp_path / "data").symlink_to("blob")
    outside(path, "data", offset="4", checksum=hashlib.sha1(data.tobytes()).hexdigest())
    (tensor,) = read_model(path).graph.initializer
    assert onnx.numpy_helper.to_array(tensor).tolist() == [1, 2, 3, 4, 5, 6]
    before = stamp(path)
    data[:7].tofile(tmp_path / "blob")
    assert [old == new for old, new in zip(before, stamp(path), strict=True)] == [True, False]
    (tensor,) = onnx.load(path, load_external_data=False).graph.initializer
    node = helper.make_node("Constant", [], ["w"], value=tensor)
    function = helper.make_function(
        "own", "Plus", ["x"], ["y"], [node, ADD], [helper.make_opsetid("", 17)]
    )
    save(path, [helper.make_node("Plus", ["x"], ["y"], domain="own")], functions=[function])
    with pytest.raises(InputError, match="data, which has another checksum; copy the file again"):
        read_model(path)


@pytest.mark.parametrize("kind", [0, 99])
def test_an_input_of_unknown_elements(tmp_path, kind) -> None:
    path = save(tmp_path / "m.onnx", [onnx.helper.make_node("Relu", ["x"], ["y"])])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = kind
    onnx.save(model, path)
    refused(
        f"Input x in {path} has elements of the unknown type {kind}; export the model again", path
    )


def test_inputs_and_outputs(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    save(path, [RELU], outputs=())
    refused(f"Model {path} has no output", path)
    save(path, [RELU], inputs=[helper.make_tensor_value_info("x", FLOAT, [1, -4, 6])])
    refused(f"Input x in {path} has the size -4; export the model with another one", path)
    node = helper.make_node("SequenceAt", ["x", "w"], ["y"])
    sequence = [helper.make_tensor_sequence_value_info("x", FLOAT, [1, 4, 6])]
    save(path, [node], [helper.make_tensor("w", INT, [], [0])], sequence)
    message = f"Input x in {path} is no tensor but a sequence; export a model that takes tensors"
    refused(message, path)


def test_what_may_not_end(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [6]),
        ],
        [
            helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", FLOAT, [6]),
        ],
    )
    loop = helper.make_node("Loop", ["n", "", "z"], ["w"], name="turns", body=body)
    turns = [
        helper.make_tensor("n", INT, [], [1 << 62]),
        onnx.numpy_helper.from_array(np.zeros(6, np.float32), "z"),
    ]
    save(path, [loop, ADD], turns)
    message = (
        f"Node turns (Loop) in {path} is a loop, which may not end; export the model with its "
        "loops written out, as torch.onnx.export with dynamo=True does"
    )
    refused(message, path)
    value = helper.make_tensor_value_info
    inner = [value("s", FLOAT, [4, 6])], [value("t", FLOAT, [4, 6])]
    body = helper.make_graph([helper.make_node("Identity", ["s"], ["t"])], "body", *inner)
    scan = helper.make_node("Scan", ["x"], ["y"], name="turns", body=body, num_scan_inputs=1)
    save(path, [scan])
    refused(message.replace("Loop", "Scan"), path)
    noise = helper.make_node("RandomNormal", [], ["w"], name="noise", shape=[6])
    save(path, [noise, ADD])
    message = (
        f"Node noise (RandomNormal) in {path} draws random numbers; export the model after "
        "model.eval(), or leave it out"
    )
    refused(message, path)


def test_constants_whose_size_is_computed(tmp_path) -> None:
    node = helper.make_node
    nodes = [
        node("Mul", ["a", "a"], ["size"]),
        node("ConstantOfShape", ["size"], ["big"], name="bomb"),
        node("ReduceMax", ["big"], ["w"], keepdims=0),
        ADD,
    ]
    sizes = onnx.numpy_helper.from_array(np.array([1 << 15], np.int64), "a")
    path = save(tmp_path / "model.onnx", nodes, [sizes])
    message = (
        f"Model {path} is not run: Node bomb (ConstantOfShape) makes the constant big of {1 << 30} "
        f"numbers, of at most {1 << 28}"
    )
    refused(message, path)


@pytest.mark.parametrize(
    ("kind", "numbers"), [("ConstantOfShape", [1 << 20, 1 << 20]), ("Range", [0, 1 << 40, 1])]
)
def test_constants_that_fit_no_memory(kind, numbers, tmp_path) -> None:
    names = ["a", "b", "c"][: len(numbers)] if kind == "Range" else ["a"]
    values = numbers if kind == "Range" else [numbers]
    tensors = [
        onnx.numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in zip(names, values, strict=True)
    ]
    nodes = [
        helper.make_node(kind, names, ["big"], name="bomb"),
        helper.make_node("Cast", ["big"], ["w"], to=FLOAT),
        ADD,
    ]
    path = save(tmp_path / "model.onnx", nodes, tensors)
    message = f"Value big in {path} has {1 << 40} numbers, of at most {1 << 31}"
    refused(message, path)


def test_functions_within_functions(tmp_path) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(8):
        kind, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        nodes = [
            helper.make_node(kind, ["a"] if n == 0 else [f"t{n - 1}"], [f"t{n}"], domain=domain)
            for n in range(10)
        ]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["t9"], nodes, opsets))
    call = helper.make_node("f7", ["x"], ["y"], domain="own")
    path = save(tmp_path / "model.onnx", [call], functions=functions)
    message = f"Model {path} has {10**8} nodes with its functions written out, of at most {1 << 18}"
    refused(message, path)


def test_what_was_exported_for_training(tmp_path) -> None:
    path, node = tmp_path / "model.onnx", helper.make_node
    numbers = [onnx.numpy_helper.from_array(np.ones(4, np.float32), name) for name in "abcd"]
    names = ["x", "a", "b", "c", "d"]
    start = f"Model {path} was exported for training, as its "
    save(path, [node("BatchNormalization", names, ["y", "m", "v"], training_mode=1)], numbers)
    message = f"{start}batch normalization takes the numbers of its batch; export it again after "
    refused(message + "model.eval()", path)
    on = onnx.numpy_helper.from_array(np.array(True))
    save(path, [node("Constant", [], ["on"], value=on), node("Dropout", ["x", "", "on"], ["y"])])
    refused(f"{start}dropout is on; export it again after model.eval()", path)


@pytest.mark.parametrize("opset", [13, 19])
def test_files_that_are_integers_already(opset, tmp_path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
    ]
    tensors = [
        onnx.numpy_helper.from_array(np.float32(0.1), "s"),
        onnx.numpy_helper.from_array(np.int8(3), "z"),
    ]
    path = save(tmp_path / "model.onnx", nodes, tensors)
    model = onnx.load(str(path))
    model.opset_import[0].version = opset
    onnx.save(model, str(path))
    with pytest.raises(ValueError, match=r"it holds integers already; export the model in float"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("kind", "attributes", "most"),
    [
        ("GatherND", {"batch_dims": -3}, "from 0 to 64, not -3"),
        ("GatherND", {"batch_dims": -(1 << 63)}, "from 0 to 64, not -9223372036854775808"),
        ("LayerNormalization", {"axis": 1 << 31}, "from -64 to 64, not 2147483648"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_axes_that_end_the_process_are_refused(kind, attributes, most, inside, tmp_path) -> None:
    """ONNX's libraries read beside their memory."""
    node = helper.make_node(kind, ["x", "w"], ["y"], name="part", **attributes)
    opsets, (name,) = [helper.make_opsetid("", 17)], attributes
    function = helper.make_function("own", "Own", ["x", "w"], ["y"], [node], opsets)
    nodes = [helper.make_node("Own", ["x", "w"], ["y"], domain="own")] if inside else [node]
    weight = raw("w", INT, [1, 1], bytes(8)) if "G" in kind else raw("w", FLOAT, [6], bytes(24))
    functions = [function] if inside else []
    path = save(tmp_path / "model.onnx", nodes, [weight], functions=functions)
    refused(f"Attribute {name} of node part in {path} must be {most}; export the model again", path)


@pytest.mark.parametrize("perm", [(-4, 2, 1, 3), (0, 2, 1, 4)])
def test_graphs_that_onnx_runtime_calls_invalid_are_refused(perm, tmp_path) -> None:
    """ONNX's evaluator takes axes from the end."""
    form, path = Form(), tmp_path / "model.onnx"
    form.save(path, form.block("x"))
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == "Transpose")
    node.attribute[0].CopyFrom(helper.make_attribute("perm", perm))
    onnx.save(model, path)
    start = rf"Model .* cannot be run: Node \({node.name}\) Op \(Transpose\) \[TypeInferenceError\]"
    with pytest.raises(InputError, match=f"^{start} Invalid attribute perm"):
        load_onnx(path)
