"""Summary of a model before compilation: its parts, their sizes, and where each is computed."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.host_steps import HostStep
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.graph import builder, network
from celosia.generators.graph.network import Description, Home, Network, Node
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.fitting import FitError, remedy
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import in_window

_SEED, _SAMPLES, _LENGTH = 1, 4, 8
MACHINE, HOST = "machine", "host"


@dataclass(frozen=True)
class Part:
    """A row of the table that :func:`inspect` returns: a tensor, layer or function of a model."""

    part: str
    """Name in the file or in the description."""
    what: str
    """Function of the part."""
    shape: str
    """Shape of its result: [rows, columns]."""
    parameters: int
    """Trained numbers."""
    products: int
    """Products of one inference at full length; for a decoder, of one token at the last
    position."""
    runs: str
    """``machine`` or ``host``."""


def inspect(source: Source | TextSource) -> dict[str, Any]:
    """Return a summary of a model before compilation, as a dictionary.

    - ``parts``: list of the model's tensors, layers and functions, each with the fields of
      :class:`Part`. Equal parts share an entry.
    - ``parameters``, ``products``: numbers for the whole model.
    - ``host_products``: number of products that the host computes.
    - ``compared``: false if the import of an ONNX model was not checked.
    """
    parts = _text_parts(source) if isinstance(source, TextSource) else _parts(source)
    model = source.description
    return {
        "model": model.name,
        "kind": _kind(model),
        "parts": [asdict(part) for part in parts],
        "parameters": sum(part.parameters for part in parts),
        "products": sum(part.products for part in parts),
        "host_products": sum(part.products for part in parts if part.runs == HOST),
        "unused": [] if isinstance(source, TextSource) else list(source.unused),
        "labels": [] if isinstance(source, TextSource) else list(source.labels),
        "input": _input(source),
        "others": {} if isinstance(source, TextSource) else source.named.shapes,
        "compared": isinstance(source, TextSource) or source.compared,
    }


def fit(source: Source | TextSource, config: Config) -> dict[str, Any]:
    """Return the memory that a model needs on a configuration, as a dictionary.

    If the model fits, the values of ``program_words``, ``memory_bytes`` and ``zero_tiles_left_out``
    (weight tiles of zeros that are not stored) are numbers, and ``refused`` is None. Otherwise,
    these three values are None, and ``refused`` is the reason for which the model does not fit.
    """
    figures = dict.fromkeys(("program_words", "memory_bytes", "zero_tiles_left_out"))
    report: dict[str, Any] = {"config": config.name, **figures}
    rng = np.random.default_rng(_SEED)
    try:
        if isinstance(source, TextSource):
            model = source.description
            length = min(_LENGTH, model.source_positions or model.positions)
            tokens = rng.integers(0, model.vocabulary, (_SAMPLES, length)).tolist()
            decoder, _ = source.calibrate(tokens, Quantization(length=length))
            context = min(decoder.places, config.vector.longest_row)
            text = compile_text(decoder, config, context=context)
            made = {"program_words": len(text.words), "memory_bytes": text.memory_bytes}
            made["zero_tiles_left_out"] = 0
        else:
            samples = [source.prepare(source.random(rng)) for _ in range(_SAMPLES)]
            model_made = compile_model(source.description, source.weights, samples, config)
            made = {"program_words": len(model_made.words), "memory_bytes": model_made.memory_bytes}
            made["zero_tiles_left_out"] = model_made.left_out
    except FitError as error:
        return {**report, "refused": f"{error}; {remedy(error)}"}
    except InputError as error:
        return {**report, "refused": str(error)}
    return {**report, **made, "refused": None}


def _kind(model: Description) -> str:
    if not isinstance(model, TextDescription):
        return "encoder"
    return "encoder-decoder" if model.source_layers else "decoder"


def _input(source: Source | TextSource) -> list[int]:
    if isinstance(source, TextSource):
        return [source.description.source_positions or source.description.positions]
    if source.shape is not None:
        return list(source.shape)
    model = source.description
    return [model.tokens] if model.embedding == "tokens" else [model.tokens, model.features]


def _sizes(model: Description, prefix: str) -> int:
    """Return the number of trained parameters in the tensors with a prefix."""
    total = 0
    for name, shape in model.shapes().items():
        if name == prefix or name.startswith(f"{prefix}."):
            total += math.prod(shape)
    return total


def _parts(source: Source) -> list[Part]:
    model = source.description
    rows = model.sequence
    tables = sum(_sizes(model, name) for name in ("words", "types", "positions", "class_token"))
    shape, parts = f"[{rows}, {model.dim}]", _steps(source.before)
    if model.embedding == "tokens":
        parts.append(Part("embedding", "lookup", shape, tables, 0, HOST))
    elif model.embedding == "none" and tables:
        parts.append(Part("positions", "added", shape, tables, 0, HOST))
    elif tables:
        parts.append(Part("positions", "the sums' start", shape, tables, 0, MACHINE))
    parts += _nodes(model, builder.network(model), rows)
    if model.unit:
        parts.append(Part("unit", "rows of length 1", "", 0, 0, HOST))
    return parts + _steps(source.after)


def _steps(steps: Sequence[HostStep]) -> list[Part]:
    return [Part(step.name, step.what, "", step.parameters, step.products, HOST) for step in steps]


def _text_parts(source: TextSource) -> list[Part]:
    model = source.description
    graph = builder.network(model)
    parts: list[Part] = []
    if graph.source is not None:
        rows = model.source_positions
        size = sum(_sizes(model, f"source.{name}") for name in ("words", "positions"))
        shape = f"[{rows}, {model.dim}]"
        parts.append(Part("source embedding", "lookup of tokens", shape, size, 0, MACHINE))
        parts += _nodes(model, graph.source, rows)
    words = sum(_sizes(model, name) for name in ("words", "positions", "rotary_speeds"))
    parts.append(Part("embedding", "lookup of a token", f"[1, {model.dim}]", words, 0, MACHINE))
    parts += _nodes(model, graph, 1)
    return [*parts, Part("sampling", "choice of the next token", "[1]", 0, 0, HOST)]


def _nodes(model: Description, graph: Network, rows: int) -> list[Part]:
    """Return the rows of a graph's nodes; nodes of the first layer stand for all layers.

    The keys and values of the first layer's cross-attention also stand for those of all layers.
    """
    counted = [(node, 1) for node in graph.before]
    counted += [(node, len(graph.layers)) for node in graph.layers[0]]
    for node in graph.after:
        kept = node.target.name.startswith("layers.")
        if not kept or node.target.name.startswith("layers.0."):
            counted.append((node, model.layers if kept else 1))
    return [_node(model, node, rows, times) for node, times in counted if _shown(node)]


def _shown(node: Node) -> bool:
    return not isinstance(node, network.Embedding | network.Start | network.Convert)


def _seen(model: Description, node: network.Attention, rows: int) -> tuple[int, str]:
    """Return the most rows that a row attends to, and a description of them."""
    if isinstance(model, TextDescription) and node.key.home is Home.CACHE:
        return model.positions, ", causal"
    if isinstance(model, TextDescription) and node.key.home is Home.SOURCE:
        return model.source_positions, ", of the source"
    return rows, ", padding masked" if node.variable else ""


def _node(model: Description, node: Node, rows: int, times: int) -> Part:
    """Return the row of a node, or of the same node in ``times`` layers."""
    target = node.target
    name, out = target.name, target.rows or rows
    parameters = products = 0
    description = type(node).__name__.lower()
    match node:
        case network.Linear():
            name = node.weight.removesuffix(".weight")
            outputs, inputs = model.shapes()[node.weight]
            # A head that shares the vocabulary's weights has been counted there.
            parameters = 0 if name == "words" else _sizes(model, name)
            products = (out - node.row) * outputs * inputs
            description = f"linear, {node.activation}" if node.activation else "linear"
            if node.residual is not None:
                description += ", added"
        case network.Norm():
            name, parameters, description = node.name, _sizes(model, node.name), model.norm
        case network.Attention():
            seen, kind = _seen(model, node, rows)
            pairs = rows * seen
            if node.window:
                pairs = int(in_window(rows, node.window, node.global_tokens).sum())
                kind += f", window of {node.window} to each side"
                kind += f", {node.global_tokens} global tokens" * (node.global_tokens > 0)
            products = 2 * pairs * model.head_dim * model.heads
            description = f"{model.heads} heads of {model.head_dim}{kind}"
        case network.Pool():
            description = "mean of the rows"
    start = "source " if name.startswith("source.") else ""
    name = name.removeprefix("source.")
    name = start + name.replace("layers.0.", f"{times} x " if times > 1 else "layer ")
    shape = f"[{out}, {target.columns}]"
    return Part(name, description, shape, times * parameters, times * products, MACHINE)
