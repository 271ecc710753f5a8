"""Reading of ONNX files, including external tensor files."""

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.files import inside, reading
from celosia.arch.packages import library

ONNX_SUFFIX = ".onnx"
OLDEST_OPSET = 7
"""Opset from which on a constant's axes follow NumPy's rules, and all tools run the nodes."""
_LOOPS = ("Loop", "Scan", "SequenceMap")
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform")
_RANDOM_KINDS = (*_RANDOM, "RandomUniformLike")
_WRITTEN_OUT = ("Attention",)
"""Nodes that are replaced by the graph with which ONNX itself defines them."""
_MOST_NUMBERS = 1 << 29
"""Most numbers of tensors in other files; in float32 they fill the largest message, 2 GiB."""
_MOST_AXES = 64
"""Most axes of a tensor: far more than any model has."""
_MOST_NODES = 1 << 18
"""Most nodes of a graph with all of its functions expanded."""


def onnx_library(name: str) -> Any:
    """Return the module ``name`` of the package ``onnx``.

    Raises :class:`InputError` if the package is not installed.
    """
    return library(name, "ONNX files need", "onnx")


def file_and_output(path: Path) -> tuple[Path, str]:
    """Return (file, name of an output) for a path such as ``model.onnx:scores``.

    The name is empty if the path does not name an output.
    """
    before, colon, output = str(path).partition(f"{ONNX_SUFFIX}:")
    return (Path(before + ONNX_SUFFIX), output) if colon else (path, "")


def is_onnx(path: Path) -> bool:
    """Return whether a path ends in ``.onnx``, or in ``.onnx:`` and the name of an output."""
    return file_and_output(path)[0].suffix == ONNX_SUFFIX


def read_model(path: Path) -> Any:
    """Return the ONNX model in a file, with calls of functions replaced by the functions' nodes.

    ``path`` may end in the name of an output, as in ``model.onnx:scores``, which becomes the first
    output. Raises :class:`InputError` if the file cannot be read or lacks the output. The same
    error is raised if the model is invalid, too large, exported for training, or has loops, random
    nodes or sparse tensors.
    """
    onnx = onnx_library("onnx")
    path, output = file_and_output(path)
    try:
        with reading(path, "ONNX file"):
            model = onnx.load(str(path), load_external_data=False)
        _check_opsets(path, model)
        _write_erfc(model.graph)
        _check_operators(path, model)
        _check_axes(path, model)
        _check_size(path, model)
        for tensor in tensors_of(model):
            _check_tensor(path, tensor)
        onnx.checker.check_model(model)
    except InputError:
        raise
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise InputError(f"File {path} is not an ONNX model: {line}") from error
    if model.functions:
        _check_functions(path, model)
        model = onnx_library("onnx.inliner").inline_local_functions(model)
    if any(node.op_type in _WRITTEN_OUT for node in model.graph.node):
        model = onnx_library("onnx.inliner").inline_selected_functions(
            model, [("", kind) for kind in _WRITTEN_OUT], inline_schema_functions=True
        )
    for node in every_node(model.graph):
        _check_node(path, node, model)
    _order_outputs(path, model.graph.output, output)
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise InputError(f"Tensor {name} in {path} is sparse; export the model with dense tensors")
    return model


def _order_outputs(path: Path, outputs: Any, first: str) -> None:
    """Move the output ``first`` to the front of a graph's outputs, if it is not empty."""
    names = [output.name for output in outputs]
    if not names:
        raise InputError(f"Model {path} has no output")
    if first and first not in names:
        raise InputError(f"Model {path} has no output {first!r}; it has {', '.join(names)}")
    if first:
        outputs.insert(0, outputs.pop(names.index(first)))


def subgraphs(node: Any) -> Iterator[Any]:
    """Yield the graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def every_node(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph and of the subgraphs in its nodes."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from every_node(inner)


def data_files(path: Path) -> list[Path]:
    """Return the paths of the files beside an ONNX file that hold tensors of its model.

    The list is empty if the file is not an ONNX model.
    """
    onnx = onnx_library("onnx")
    model = onnx.ModelProto()
    with suppress(Exception):
        model = onnx.load(str(path), load_external_data=False)
    entries = (entry for tensor in tensors_of(model) for entry in tensor.external_data)
    return sorted({path.parent / entry.value for entry in entries if entry.key == "location"})


def tensors_of(model: Any) -> Iterator[Any]:
    """Yield the tensors of a model, of its functions, and of the subgraphs in its nodes."""
    yield from model.graph.initializer
    for part in (model.graph, *model.functions):
        for node in every_node(part):
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
            for inner in subgraphs(node):
                yield from inner.initializer


def _check_opsets(path: Path, model: Any) -> None:
    newest = onnx_library("onnx.defs").onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not OLDEST_OPSET <= opset.version <= newest:
            raise InputError(
                f"Model {path} is of ONNX opset {opset.version}; export it again with an opset "
                f"from {OLDEST_OPSET} to {newest}"
            )


def _write_erfc(graph: Any) -> None:
    """Replace TensorFlow's Erfc, which converters leave in a graph, by ``1 - Erf``."""
    helper, nodes = onnx_library("onnx.helper"), list(graph.node)
    for node in nodes:
        if node.op_type == "Erfc" and node.domain in ("", "ai.onnx"):
            (output,) = node.output
            node.op_type, node.output[0] = "Erf", f"{output} erf"
            constant = helper.make_tensor(f"{output} one", 1, [], [1.0])
            graph.initializer.append(constant)
            rest = helper.make_node("Sub", [constant.name, node.output[0]], [output], name=output)
            graph.node.insert(list(graph.node).index(node) + 1, rest)


def _check_operators(path: Path, model: Any) -> None:
    """Refuse kinds of nodes that ONNX does not have."""
    known, own = onnx_library("onnx.defs").has, {function.name for function in model.functions}
    for node in every_node(model.graph):
        if node.domain in ("", "ai.onnx") and node.op_type not in own and not known(node.op_type):
            raise InputError(
                f"Node {node.name or node.output[0]} in {path} is of the kind {node.op_type}, "
                "which ONNX does not have; convert the model with other parts"
            )


def _check_axes(path: Path, model: Any) -> None:
    """Refuse axes for which ONNX's libraries read memory beside their tables."""
    for part in (model.graph, *model.functions):
        for node in every_node(part):
            for attribute in node.attribute:
                least = 0 if attribute.name == "batch_dims" else -_MOST_AXES
                number = attribute.i if attribute.name in ("axis", "batch_dims") else least
                if not least <= number <= _MOST_AXES:
                    raise InputError(
                        f"Attribute {attribute.name} of node {node.name or node.output[0]} in "
                        f"{path} must be from {least} to {_MOST_AXES}, not {number}; export the "
                        "model again"
                    )


def _check_size(path: Path, model: Any) -> None:
    """Refuse a model that ONNX's tools cannot handle as one message, before its files are read."""
    sizes = [math.prod(t.dims) for t in tensors_of(model) if t.data_location == t.EXTERNAL]
    if sum(sizes) > _MOST_NUMBERS:
        raise InputError(
            f"Model {path} has {sum(sizes)} numbers in other files, of at most {_MOST_NUMBERS}; "
            "give its Hugging Face folder"
        )


def _check_tensor(path: Path, tensor: Any) -> None:
    """Read a tensor that has a file, and compare its shape with the bytes that are there for it."""
    subject = f"Tensor {tensor.name} in {path}"
    if any(size < 0 for size in tensor.dims):
        raise InputError(f"{subject} has the shape {list(tensor.dims)}; export the model again")
    count = math.prod(tensor.dims)
    if tensor.data_location == tensor.EXTERNAL:
        _read_data(path, tensor, count)
    wrong = InputError(
        f"{subject} does not hold the {count} numbers of its shape {list(tensor.dims)}; export the "
        "model again"
    )
    if count > 8 * tensor.ByteSize():
        raise wrong
    try:
        onnx_library("onnx.numpy_helper").to_array(tensor)
    except Exception as error:
        raise wrong from error


def _read_data(path: Path, tensor: Any, count: int) -> None:
    """Read a tensor's ``count`` numbers from its file: a regular one in the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = inside(path.parent, entries.pop("location", ""), path)
    subject = f"Tensor {tensor.name} of {path} is in the file {file.relative_to(path.parent)}"
    checksum = entries.pop("checksum", "")
    for name, value in entries.items():
        if name not in ("offset", "length") or not value.isdecimal():
            raise InputError(f"{subject} with {name} {value!r}; save the model again")
    if not file.exists():
        raise InputError(f"{subject}, which is missing; put it into the folder {path.parent}")
    with reading(file), file.open("rb") as stream:
        if checksum and hashlib.file_digest(stream, "sha1").hexdigest() != checksum.lower():
            raise InputError(f"{subject}, which has another checksum; copy the file again")
        size = stream.seek(0, os.SEEK_END)
        number = onnx_library("onnx.helper").tensor_dtype_to_np_dtype(tensor.data_type)
        begin, length = (
            int(entries.get(key, default))
            for key, default in (("offset", 0), ("length", count * number.itemsize))
        )
        if begin + length > size:
            raise InputError(f"{subject}, which ends after {size} bytes; copy the file again")
        stream.seek(begin)
        tensor.raw_data = stream.read(length)
    tensor.data_location = tensor.DEFAULT


def _check_functions(path: Path, model: Any) -> None:
    """Count the nodes of a graph whose functions are expanded."""
    bodies = {(function.domain, function.name): function for function in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Any, open_functions: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = node.domain, node.op_type
            if key in open_functions:
                raise InputError(f"Function {node.op_type} in {path} calls itself")
            if key in bodies and key not in counts:
                counts[key] = count(bodies[key].node, (*open_functions, key))
            total += counts.get(key, 1)
            for inner in subgraphs(node):
                total += count(inner.node, open_functions)
        return total

    total = count(model.graph.node, ())
    if total > _MOST_NODES:
        raise InputError(
            f"Model {path} has {total} nodes with its functions written out, of at most "
            f"{_MOST_NODES}"
        )


def _check_node(path: Path, node: Any, model: Any) -> None:
    """Refuse nodes whose run may not end, or that return other numbers each time."""
    subject = f"Node {node.name or node.output[0]} ({node.op_type}) in {path}"
    if node.op_type in _LOOPS:
        raise InputError(
            f"{subject} is a loop, which may not end; export the model with its loops written out, "
            "as torch.onnx.export with dynamo=True does"
        )
    if node.op_type in _RANDOM_KINDS:
        raise InputError(
            f"{subject} draws random numbers; export the model after model.eval(), or leave it out"
        )
    trained = _trains(node, model)
    if trained:
        raise InputError(
            f"Model {path} was exported for training, as its {trained}; export it again after "
            "model.eval()"
        )


def _trains(node: Any, model: Any) -> str:
    """Describe that a node drops numbers, or normalizes by its batch; else return nothing."""
    if node.op_type == "BatchNormalization":
        mode = any(
            attribute.name == "training_mode" and attribute.i for attribute in node.attribute
        )
        batch = mode or sum(map(bool, node.output)) > 1
        return "batch normalization takes the numbers of its batch" if batch else ""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return ""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for constant in model.graph.node:
        if constant.op_type == "Constant" and constant.attribute[0].name == "value":
            tensors[constant.output[0]] = constant.attribute[0].t
    on = tensors.get(node.input[2])
    drops = on is not None and onnx_library("onnx.numpy_helper").to_array(on).any()
    return "dropout is on" if drops else ""
