"""Import of Transformer encoders from ONNX graphs, such as those of PyTorch's exporter.

The host runs nodes before the first block and after the last block that match no layer of the
accelerator. The imported model is compared with a run of the graph.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.host_steps import Array, HostStep, rearrange
from celosia.generators.frontend.named_inputs import NamedInputs, OtherInput
from celosia.generators.frontend.onnx.causal import LIKE, unlike_gpt2
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.inputs import OpenLengthError
from celosia.generators.frontend.onnx.length import FEW, required_length
from celosia.generators.frontend.onnx.match import NAMES, Encoder
from celosia.generators.frontend.onnx.reading import read_graph
from celosia.generators.frontend.onnx.recognized import read_encoder
from celosia.generators.frontend.onnx.values import (
    Patches,
    Tensor,
    Value,
    View,
)
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.tokenizer import TOKENIZER_FILE, FileTokenizer
from celosia.generators.frontend.weights import Weights, check_weights

_TRIES = 8
"""Other rows with which the dependence of an output on a row is tried."""
_MANY_SCORES = 1 << 25
"""Scores of all attention of an input for which a comparison with the graph takes seconds."""


def load_onnx(path: Path, tokens: int = 0, *, quick: bool = False) -> Source:
    """Return the encoder in an ONNX file, after a comparison of its outputs with the graph's.

    - ``path``: the file, or the file and an output, as in ``model.onnx:scores``.
    - ``tokens``: the number of tokens; 0 if the graph fixes it.
    - ``quick``: true to omit slow comparisons (more than 2**25 attention scores).

    Raises :class:`InputError` if the file cannot be read, ``tokens`` does not fit, the model is a
    decoder or not supported, or outputs differ.
    """
    fixed = required_length(path) if tokens else 0
    if fixed not in (0, tokens):
        raise InputError(
            f"Model {path} is made for {fixed} tokens, not {tokens}; give it with --context {fixed}"
        )
    try:
        return read_graph(path, tokens, lambda graph: _load(graph, quick=quick))
    except OpenLengthError as error:
        try:
            encoder = read_graph(path, FEW, lambda graph: read_encoder(graph)[0])
        except InputError:
            raise error from None
        _refuse_causal(path, encoder)
        raise


def _load(graph: Graph, *, quick: bool) -> Source:
    path = graph.path
    try:
        encoder, values = read_encoder(graph)
    except InputError:
        # A number that is named as a length may be the place of a token, which ends one earlier.
        if not graph.without_masks(["length"]):
            raise
        encoder, values = read_encoder(graph)
    if not encoder.blocks[0].variable and graph.without_masks():
        encoder, values = read_encoder(graph)
    _refuse_causal(path, encoder)
    source = _source(encoder, graph, values)
    scores = len(encoder.blocks) * encoder.blocks[0].heads * encoder.rows**2
    if quick and scores > _MANY_SCORES:
        return replace(source, compared=False)
    _verify(path, graph, source)
    return source


def _refuse_causal(path: Path, encoder: Encoder) -> None:
    """Raise :class:`InputError` if a graph is that of a language model."""
    if not encoder.blocks[0].causal:
        return
    wrong = unlike_gpt2(encoder)
    if wrong:
        raise InputError(
            f"Model {path} is not run: its mask is causal, but as a language model it has "
            f"{wrong}; {LIKE}"
        )
    raise InputError(
        f"Model {path} is a language model, as its mask is causal; run it with: celosia run {path}"
    )


def _source(encoder: Encoder, graph: Graph, values: dict[str, Value]) -> Source:
    graph_input = graph.inputs[0]
    before: list[HostStep] = []
    shape: tuple[int, ...] | None = None
    tensor = encoder.start
    vocabulary = graph_input.kind == "tokens"
    own = graph.sample_shape
    masks = tuple((mask.name, mask.kind) for mask in graph.inputs if mask.masks)
    if isinstance(tensor, Patches):
        meaning = f"{tensor.rows} patches of {tensor.columns} numbers"
        before, shape = [rearrange("patches", meaning, tensor.places)], own
    elif encoder.prologue:
        before, shape = [_prologue(encoder, graph)], own
    elif len(own) == 1 and not vocabulary:
        before = [HostStep("column", "one feature for each token", lambda x: x.reshape(-1, 1))]
        shape = own
    description, weights = _describe(encoder, graph.file.stem, tensor)
    after: tuple[HostStep, ...] = ()
    if encoder.name:
        after = (_epilogue(encoder, graph, values),)
    beside = graph.file.parent / TOKENIZER_FILE
    words = _vocabulary(graph, description) if vocabulary else 0
    return Source(
        description,
        weights,
        FileTokenizer(beside) if vocabulary and beside.is_file() else None,
        before=tuple(before),
        after=after,
        unused=graph.unused,
        shape=shape,
        vocabulary=words if before else 0,
        padding=graph.cache.padding,
        path=graph.file.parent,
        named=NamedInputs(graph_input.name, _others(graph), masks),
    )


def _others(graph: Graph) -> tuple[OtherInput, ...]:
    """Return the inputs that the user gives besides the first.

    Integers are rows of the table that they select from, else places of tokens.
    """
    made = []
    for graph_input in graph.others:
        rows = _tables(graph, graph_input.name)
        integer = np.issubdtype(graph_input.dtype, np.integer)
        below = min([*rows, np.iinfo(graph_input.dtype).max]) if integer and rows else graph.tokens
        shape = graph_input.shape[1:] if graph.batched else graph_input.shape
        made.append(OtherInput(graph_input.name, shape, below if integer else 0))
    return tuple(made)


def _vocabulary(graph: Graph, description: ModelDescription) -> int:
    """Return the number of tokens: the rows of the table that the input selects from."""
    if description.vocabulary:
        return description.vocabulary
    rows = _tables(graph, graph.inputs[0].name)
    if not rows:
        raise InputError(f"Model {graph.path} is not run: its table of token vectors is not found")
    return rows[0]


def _tables(graph: Graph, name: str) -> list[int]:
    """Return the number of rows of each constant table that an input selects rows from."""
    return [
        len(graph.known[node.input[0]])
        for node in graph.model.graph.node
        if node.op_type == "Gather" and node.input[1] == name
        if node.input[0] in graph.known
    ]


def _prologue(encoder: Encoder, graph: Graph) -> HostStep:
    """Return the step from the input to the blocks' input."""
    name, tensor = encoder.prologue, encoder.start
    assert tensor is not None
    nodes = graph.needed({name}, set())
    part = graph.subgraph_runner([name], [])
    kinds = sorted({node.op_type for node in nodes if node.op_type != "Constant"})
    used = {operand for node in nodes for operand in node.input}

    def function(values: Array, others: Mapping[str, Array]) -> Array:
        length = len(values) if len(values) < graph.tokens else graph.tokens
        feeds = graph.feeds(values, length, others)
        feeds = {key: array for key, array in feeds.items() if key in used}
        rows = np.asarray(graph.run_part(part, feeds)[0], np.float64)
        rows = rows.reshape(tensor.rows, tensor.columns)
        return rows[:length] if encoder.blocks[0].variable else rows

    parameters = sum(graph.known[operand].size for operand in used if operand in graph.known)
    listed = ", ".join(kinds)
    return HostStep("embedding", listed, function, parameters, _products(graph, nodes), beside=True)


def _epilogue(encoder: Encoder, graph: Graph, values: dict[str, Value]) -> HostStep:
    """Return the step from the machine's output to the graph's."""
    value = values[encoder.name]
    assert isinstance(value, View)
    shape, dtype = value.shape, graph.dtype(encoder.name)
    nodes = graph.needed({graph.output}, {encoder.name})
    part = graph.subgraph_runner([graph.output], [encoder.name])
    kinds = [node.op_type for node in nodes if node.op_type not in ("Constant", "Identity")]
    used = {operand for node in nodes for operand in node.input}
    size = int(np.prod(shape))

    def whole(rows: Array, others: Mapping[str, Array]) -> Array:
        padded = np.zeros(size)
        padded[: rows.size] = rows.ravel()
        feeds: dict[str, Array] = {encoder.name: padded.reshape(shape).astype(dtype)}
        # Of the first input the shape alone is used; a class token is no token of the input.
        own = graph.feeds(np.zeros(0), len(rows) - encoder.rows + graph.tokens, others)
        feeds |= {name: array for name, array in own.items() if name in used}
        output: Array = np.asarray(graph.run_part(part, feeds)[0], np.float64)
        # The graph itself may have left the batch out of its output.
        batched = graph.batched and output.ndim > 0 and len(output) == 1
        return np.atleast_1d(output[0] if batched else output)

    by_token: list[bool] = []

    def is_by_token(others: Mapping[str, Array]) -> bool:
        """Return whether the last row of the output alone depends on the last row."""
        rng, changed = np.random.default_rng(0), np.zeros(encoder.rows, bool)
        rows = rng.normal(0, 1, (encoder.rows, size // encoder.rows))
        before = np.nan_to_num(whole(rows, others))
        for _ in range(_TRIES):
            rows[-1] = rng.normal(0, 1, len(rows[-1]))
            other = np.nan_to_num(whole(rows, others)) != before
            changed |= other.reshape(encoder.rows, -1).any(axis=1)
        return bool(changed[-1]) and not changed[:-1].any()

    def function(rows: Array, others: Mapping[str, Array]) -> Array:
        output = whole(rows, others)
        rowwise = output.ndim > 1 and rows.size < size and len(output) == encoder.rows
        if rowwise and not by_token:
            by_token.append(is_by_token(others))
        return output[: len(rows)] if rowwise and by_token[0] else output

    parameters = sum(graph.known[operand].size for operand in used if operand in graph.known)
    listed = ", ".join(dict.fromkeys(kinds))
    return HostStep("head", listed, function, parameters, _products(graph, nodes), beside=True)


def _products(graph: Graph, nodes: Sequence[Any]) -> int:
    """Return the products with constants in nodes."""
    total = 0
    for node in nodes:
        known = [graph.known[operand] for operand in node.input[:2] if operand in graph.known]
        if node.op_type not in ("MatMul", "Gemm", "Conv", "Einsum") or not known:
            continue
        shape = graph.shape(node.output[0])
        if shape:
            outputs = shape[1] if node.op_type == "Conv" else shape[-1]
            total += int(np.prod(shape)) * (known[-1].size // max(outputs, 1))
    return total


def _describe(
    encoder: Encoder, name: str, start: Tensor | None
) -> tuple[ModelDescription, Weights]:
    first, token = encoder.blocks[0], "class_token" in encoder.weights
    description = ModelDescription(
        **encoder.fields(name),
        tokens=encoder.rows - token,
        features=0 if encoder.embedding != "linear" or start is None else start.columns,
        classes=encoder.classes,
        head_hidden=len(encoder.weights.get("head_hidden.weight", ())),
        head_activation=NAMES[encoder.head_activation] if encoder.head_activation else "tanh",
        embedding=encoder.embedding,
        vocabulary=len(encoder.weights["words"]) if encoder.embedding == "tokens" else 0,
        embedding_norm="embedding_norm.weight" in encoder.weights,
        variable=first.variable,
        window=first.window,
        global_tokens=first.global_tokens,
        class_token=token,
        pooling=encoder.pooling,
        positions="learned" if "positions" in encoder.weights else "none",
    )
    return description, check_weights(encoder.tensors(name), description)


def _verify(path: Path, graph: Graph, source: Source) -> None:
    """Compare with the graph on a random input, and if possible on the longest and shortest cut."""
    random, description = np.random.default_rng(0), source.description
    lengths = [description.tokens]
    tokens = graph.inputs[0].kind == "tokens"
    if description.variable and description.tokens > 1:
        lengths += sorted({description.tokens - 1, 1}, reverse=True)
    for length in lengths:
        first, others = source.named.split_sample(description.name, source.random(random))
        inputs = first[:length] if description.variable else first
        expected = graph.run(inputs if tokens else first, length, others)
        if not expected.size:
            raise InputError(f"Model {path} is not run: its output has no elements")
        values = {source.named.first: inputs, **others} if others else inputs
        floats = np.asarray(source.floats(source.prepare(values)))
        floats = floats.reshape(-1, floats.shape[-1])
        if expected.size % floats.shape[1] == 0 and expected.size >= floats.size:
            expected = expected.reshape(-1, floats.shape[1])
            # Of a short input, the graph also computes rows of padding.
            expected = expected if length == description.tokens else expected[: len(floats)]
        graph.check(f"outputs of {length} tokens", floats, expected)
