"""Import of Transformer encoders from ONNX graphs, such as those of PyTorch's exporter.

The modules ``graph`` and ``nodes`` recognize the tensor that each node of a graph computes. The
module ``match`` finds the blocks of a model description in these tensors. Before the first block
and after the last block, a graph may have nodes that a model description cannot express. The host
runs these nodes with ONNX Runtime or ONNX's reference implementation. Finally, the importer
compares the model's outputs with the graph's outputs. If the argument ``quick`` of
:func:`load_onnx` is true, large graphs are not compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.host_steps import Array, HostStep, cut
from celosia.generators.frontend.named_inputs import NamedInputs, OtherInput
from celosia.generators.frontend.onnx.causal import LIKE, unlike_gpt2
from celosia.generators.frontend.onnx.explain import explain
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.inputs import OpenLengthError
from celosia.generators.frontend.onnx.length import FEW, few, made_for
from celosia.generators.frontend.onnx.match import Encoder, match
from celosia.generators.frontend.onnx.reading import read_graph
from celosia.generators.frontend.onnx.values import (
    Context,
    Patches,
    Scores,
    Shares,
    Tensor,
    UnsupportedError,
    Value,
    View,
)
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.tokenizer import TOKENIZER_FILE, Tokenizer
from celosia.generators.frontend.weights import check_weights
from celosia.generators.reference.floats import FUNCTION_NAMES

_MANY_SCORES = 1 << 25
"""Scores of all attention of an input for which a comparison with the graph takes seconds."""
TOLERANCE = 1e-3
"""Tolerance of the imported model against the graph, relative to the largest output."""
NAMES = {theirs: ours for ours, theirs in FUNCTION_NAMES.items()}
"""Our name of each function."""


def load_onnx(path: Path, tokens: int = 0, *, quick: bool = False) -> Source:
    """Return the encoder in an ONNX file as a :class:`Source`.

    ``path`` may end in a colon and the name of the output to import, as in ``model.onnx:scores``.
    Without such a name, the importer uses the first output that is not only a copy of an input.
    ``tokens`` is the number of tokens, or 0 if the graph fixes it.

    The graph's first input is [batch, tokens, features], [batch, channels, height, width], or token
    numbers [batch, tokens]. Further inputs may be the mask of valid tokens, token types and
    positions.

    The importer compares the model's outputs with those of a run of the graph. If ``quick`` is true
    and the graph has more than 2**25 attention scores, the comparison is omitted. The result's
    field ``compared`` is then False.

    Raises :class:`InputError` in these cases:

    - the package ``onnx`` is not installed, or the file cannot be read;
    - the graph does not accept ``tokens`` tokens, or ``tokens`` is 0 and the graph fixes no number;
    - the model is a decoder;
    - a part of the graph is not supported; the message names the part, and a remedy if known;
    - the compared outputs differ by more than :data:`TOLERANCE` times the largest output (or times
      1, if that is more).
    """
    fixed = made_for(path) if tokens else 0
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


def is_causal(path: Path) -> bool:
    """Return whether an ONNX file's model has a causal mask; False if no model is recognized."""
    try:
        tokens = made_for(path) or few(path)
        return read_graph(path, tokens, lambda graph: read_encoder(graph)[0].blocks[0].causal)
    except InputError:
        return False


def read_encoder(graph: Graph) -> tuple[Encoder, dict[str, Value]]:
    """Return the encoder that a graph computes, and the dictionary from :meth:`Graph.follow`.

    The dictionary has the meaning of each value by name: a constant, a mask or a view (elements of
    a tensor). Raises :class:`InputError` if parts of the graph are unsupported; the message names
    these parts.
    """
    if graph.blocks is None:
        try:
            graph.blocks = _read_encoder(graph)
        except InputError as error:
            graph.blocks = error
    blocks: tuple[Encoder, dict[str, Value]] | InputError = graph.blocks
    if isinstance(blocks, InputError):
        raise blocks
    return blocks


def _read_encoder(graph: Graph) -> tuple[Encoder, dict[str, Value]]:
    values, reasons = graph.follow()
    first, error = _matched(graph, values, graph.output)
    if first is not None:
        return first, values
    others: list[UnsupportedError] = []
    # Of all values behind the blocks, the last that is understood; the host does the rest.
    for node in reversed(graph.needed({graph.output}, set())):
        for name in node.output:
            if name and _host_can(graph, values, name):
                encoder, wrong = _matched(graph, values, name)
                if encoder is not None and not _lacks_mlp(graph, values, encoder, name):
                    return replace(encoder, name=name), values
                others += [] if wrong is None else [wrong]
    raise InputError(f"Model {graph.path} is not run: {explain(graph, reasons, error, others)}")


def _matched(
    graph: Graph, values: dict[str, Value], name: str
) -> tuple[Encoder | None, UnsupportedError | None]:
    value = values.get(name)
    try:
        if not isinstance(value, View):
            raise UnsupportedError("the output does not depend on the input")
        encoder = match(graph.made.settled(value), graph.names)
        nodes = graph.needed({encoder.prologue} - {""}, set())
        if _attends(graph, values, nodes):
            read = {name for node in nodes for name in node.input}
            others = [place.name for place in graph.others if place.name in read]
            why = "there is attention before it that is in no block like those behind"
            if others:
                why = f"it takes {', '.join(others)} between blocks"
            raise UnsupportedError(f"node {encoder.prologue}: {why}")
        return encoder, None
    except UnsupportedError as error:
        return None, error


def _lacks_mlp(graph: Graph, values: dict[str, Value], encoder: Encoder, name: str) -> bool:
    """Return whether blocks without an MLP have something behind that is added like one."""
    if "up.weight" in encoder.blocks[0].weights:
        return False
    adding = (n for n in graph.needed({graph.output}, {name}) if n.op_type in ("Add", "Sum"))
    return any(
        all(isinstance(values.get(operand), View) for operand in node.input)
        and np.prod(graph.shape(node.output[0])) == encoder.rows * encoder.dim
        for node in adding
    )


def _host_can(graph: Graph, values: dict[str, Value], name: str) -> bool:
    """Return whether the host can compute all after a value: no attention, and no other data."""
    value = values.get(name)
    if not isinstance(value, View):
        return False
    nodes, data = graph.needed({graph.output}, {name}), {graph.places[0].name}
    if value.tensor.rows == 1:  # how many tokens there were is lost
        data |= {place.name for place in graph.places if place.masks}
    # Of the input some nodes may take the shape.
    reading = (node for node in nodes if node.op_type not in ("Shape", "Size"))
    read = {operand for node in reading for operand in node.input}
    return not data & read and not _attends(graph, values, nodes)


def _attends(graph: Graph, values: dict[str, Value], nodes: Sequence[Any]) -> bool:
    """Return whether some of the nodes multiply data by data, as attention of tokens does.

    Pooling by constant queries does not count, nor does a product of one row with rows of other
    inputs.
    """
    for node in nodes:
        for output in node.output:
            value = values.get(output)
            if isinstance(value, View) and isinstance(value.tensor, Scores | Context):
                return True
        operands = [values.get(operand) for operand in node.input]
        data = [operand for operand in operands if isinstance(operand, View)]
        pools = any(isinstance(operand.tensor, Shares) for operand in data)
        if node.op_type in ("MatMul", "Einsum") and data == operands and not pools:
            own = [graph.shape(name) for name in node.input if _depends(graph, name)]
            if len(own) != 1 or np.prod(own[0]) != own[0][-1]:
                return True
    return False


def _depends(graph: Graph, name: str) -> bool:
    """Return whether a value depends on the numbers of the first input."""
    return graph.places[0].name in {
        name,
        *(operand for node in graph.needed({name}, set()) for operand in node.input),
    }


def _source(encoder: Encoder, graph: Graph, values: dict[str, Value]) -> Source:
    place = graph.places[0]
    before: list[HostStep] = []
    shape: tuple[int, ...] | None = None
    tensor = encoder.start
    vocabulary = place.kind == "tokens"
    own = graph.own
    masks = tuple((mask.name, mask.kind) for mask in graph.places if mask.masks)
    if isinstance(tensor, Patches):
        meaning = f"{tensor.rows} patches of {tensor.columns} numbers"
        before, shape = [cut("patches", meaning, tensor.places)], own
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
        Tokenizer(beside) if vocabulary and beside.is_file() else None,
        before=tuple(before),
        after=after,
        unused=graph.unused,
        shape=shape,
        vocabulary=words if before else 0,
        padding=graph.made.padding,
        path=graph.file.parent,
        named=NamedInputs(place.name, _others(graph), masks),
    )


def _others(graph: Graph) -> tuple[OtherInput, ...]:
    """Return the inputs that the user gives besides the first.

    Integers are rows of the table that they select from, else places of tokens.
    """
    made = []
    for place in graph.others:
        rows = [
            len(graph.known[node.input[0]])
            for node in graph.model.graph.node
            if node.op_type == "Gather" and node.input[1] == place.name
            if node.input[0] in graph.known
        ]
        integer = np.issubdtype(place.dtype, np.integer)
        below = min([*rows, np.iinfo(place.dtype).max]) if integer and rows else graph.tokens
        shape = place.shape[1:] if graph.batched else place.shape
        made.append(OtherInput(place.name, shape, below if integer else 0))
    return tuple(made)


def _vocabulary(graph: Graph, description: ModelDescription) -> int:
    """Return the number of tokens: the rows of the table that the input selects from."""
    if description.vocabulary:
        return description.vocabulary
    first = graph.places[0].name
    for node in graph.model.graph.node:
        if node.op_type == "Gather" and node.input[1] == first and node.input[0] in graph.known:
            return len(graph.known[node.input[0]])
    raise InputError(f"Model {graph.path} is not run: its table of token vectors is not found")


def _prologue(encoder: Encoder, graph: Graph) -> HostStep:
    """Return the step from the input to the blocks' input."""
    name, tensor = encoder.prologue, encoder.start
    assert tensor is not None
    nodes = graph.needed({name}, set())
    part = graph.part([name], [])
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
    part = graph.part([graph.output], [encoder.name])
    kinds = [node.op_type for node in nodes if node.op_type not in ("Constant", "Identity")]
    used = {operand for node in nodes for operand in node.input}
    size = int(np.prod(shape))

    def function(rows: Array, others: Mapping[str, Array]) -> Array:
        padded = np.zeros(size)
        padded[: rows.size] = rows.ravel()
        feeds: dict[str, Array] = {encoder.name: padded.reshape(shape).astype(dtype)}
        # Of the first input the shape alone is used; a class token is no token of the input.
        own = graph.feeds(np.zeros(0), len(rows) - encoder.rows + graph.tokens, others)
        feeds |= {name: array for name, array in own.items() if name in used}
        output: Array = np.asarray(graph.run_part(part, feeds)[0], np.float64)
        output = np.atleast_1d(output[0] if graph.batched else output)
        by_token = output.ndim > 1 and rows.size < size and len(output) == shape[-2]
        return output[: len(rows)] if by_token else output

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
) -> tuple[ModelDescription, dict[str, NDArray[np.float64]]]:
    first = encoder.blocks[0]
    token = "class_token" in encoder.weights
    description = ModelDescription(
        name=name,
        tokens=encoder.rows - token,
        features=0 if encoder.embedding != "linear" or start is None else start.columns,
        dim=encoder.dim,
        layers=len(encoder.blocks),
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.head_dim,
        ffn=len(first.weights.get("up.weight", ())),
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
        norm=encoder.norm,
        epsilon=encoder.epsilon,
        placement=first.placement,
        final_norm="final_norm.weight" in encoder.weights,
        activation=NAMES[first.activation] if first.activation else "gelu",
    )
    weights = dict(encoder.weights)
    for layer, block in enumerate(encoder.blocks):
        weights |= {f"layers.{layer}.{part}": value for part, value in block.weights.items()}
    if encoder.norm == "rmsnorm":
        shifted = [k for k, v in weights.items() if k.endswith("norm.bias") and np.any(v != 0)]
        if shifted:
            raise InputError(f"Model {name} adds a bias behind its RMSNorm {shifted[0]}")
        weights = {k: v for k, v in weights.items() if not k.endswith("norm.bias")}
    return description, dict(check_weights(weights, description))


def _verify(path: Path, graph: Graph, source: Source) -> None:
    """Compare with the graph on one random input, and on a short one if that is possible."""
    random, description = np.random.default_rng(0), source.description
    lengths = [description.tokens]
    tokens = graph.places[0].kind == "tokens"
    if description.variable and description.tokens > 1:
        lengths.append(description.tokens - 1)
    for length in lengths:
        first, others = source.named.parts(description.name, source.random(random))
        inputs = first[:length] if description.variable else first
        expected = graph.run(inputs if tokens else first, length, others)
        values = {source.named.first: inputs, **others} if others else inputs
        floats = np.asarray(source.floats(source.prepare(values)))
        worst = math.inf
        if expected.size % floats.shape[-1] == 0 and expected.size >= floats.size:
            expected = expected.reshape(-1, floats.shape[-1])[: floats.size // floats.shape[-1]]
            worst = float(np.abs(floats.reshape(expected.shape) - expected).max())
        if worst > TOLERANCE * max(float(np.abs(expected).max()), 1.0) or math.isnan(worst):
            raise InputError(
                f"Model {path} differs from the meaning of its nodes: "
                f"outputs of {length} tokens differ by {worst:.3g}"
            )
