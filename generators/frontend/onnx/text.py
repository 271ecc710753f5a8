"""Import of decoders from ONNX graphs.

A decoder's graph has a causal mask. The graph's output has a row for each token of a text: the
scores of all tokens of the vocabulary.
"""

from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.causal import LIKE, unlike_gpt2
from celosia.generators.frontend.onnx.graph import Graph
from celosia.generators.frontend.onnx.length import longest, probe_length, required_length
from celosia.generators.frontend.onnx.reading import read_graph
from celosia.generators.frontend.onnx.recognized import read_encoder
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Weights, check_weights
from celosia.generators.reference.floats import forward


def load_onnx_text(path: Path) -> tuple[TextDescription, Weights]:
    """Return the description and weights of the decoder in an ONNX file.

    The graph takes token numbers [batch, tokens] and returns scores [batch, tokens, vocabulary].
    Raises :class:`InputError` if the file cannot be read, is no decoder like GPT-2, or does not
    limit the number of tokens.
    """
    return read_graph(path, text_length(path), _load)


def text_length(path: Path) -> int:
    """Return the largest number of tokens of an ONNX graph whose input has a variable length.

    The result is 0 if the input has a fixed length, or if the graph cannot be read. Raises
    :class:`InputError` if no constant, such as a position table, limits the number.
    """
    if not probe_length(path) or required_length(path):
        return required_length(path)
    graph = read_graph(path, probe_length(path), lambda graph: graph)
    encoder, _ = read_encoder(graph)
    start = graph.names.get(id(encoder.blocks[0].source), graph.output)
    most = longest(path, graph, start)
    if not most:
        raise InputError(
            f"Input {graph.inputs[0].name} in {path} has no fixed number of tokens, and no table "
            "of positions ends; export the model with a fixed number of tokens"
        )
    return most


def _load(graph: Graph) -> tuple[TextDescription, Weights]:
    path = graph.path
    encoder, _ = read_encoder(graph)
    tensors = encoder.weights
    if not encoder.blocks[0].causal:
        raise InputError(f"Model {path} has no causal mask; run it with: celosia run {path}")
    wrong = unlike_gpt2(encoder)
    if wrong:
        raise InputError(f"Model {path} is not run as a language model: it has {wrong}; {LIKE}")
    biased = bool(np.any(tensors["head.bias"]))
    tied = np.array_equal(tensors["words"], tensors["head.weight"])
    model = TextDescription(
        **encoder.fields(graph.file.stem),
        vocabulary=encoder.classes,
        positions=encoder.rows,
        position="learned",
        gated=False,
        bias=True,
        tied=tied,
        head_bias=biased,
    )
    weights = {"positions": np.zeros((encoder.rows, encoder.dim))} | encoder.tensors(model.name)
    if not biased:
        del weights["head.bias"]
    if tied:
        del weights["head.weight"]
    checked = check_weights(weights, model)
    _verify(path, graph, model, checked)
    return model, checked


def _verify(path: Path, graph: Graph, model: TextDescription, weights: Weights) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, model.vocabulary, model.positions)
    expected = graph.run(numbers, len(numbers)).reshape(len(numbers), -1)
    logits = forward(model, weights, numbers[None])["logits"][0]
    graph.check("scores", logits, expected)
