"""Comparison of an imported float model's outputs with outputs of the model's original library."""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.host_steps import Array
from celosia.generators.frontend.hugging_face_folder import is_hugging_face
from celosia.generators.frontend.named_inputs import Values
from celosia.generators.frontend.onnx.file import is_onnx
from celosia.generators.frontend.onnx.text import text_length
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward, unit_rows
from celosia.generators.reference.outside import folder_reference, graph_reference

_SEED, _INPUTS, _LENGTH = 1, 2, 16
NEAR = 1e-4
"""Largest difference of a correct import, relative to the largest output."""


def compare(source: Source | TextSource, path: Path, tokens: int = 0) -> dict[str, Any]:
    """Compare an imported float model with its original library on random inputs.

    The result is a dictionary. The value of ``difference`` is the largest difference of outputs,
    relative to the library's largest output. The value of ``refused`` is None, or the reason for
    which no comparison is possible. ``tokens`` is the number of tokens of an ONNX input of variable
    length.
    """
    unknown: dict[str, Any] = {"library": None, "inputs": 0, "difference": None}
    try:
        if is_hugging_face(path):
            name, reference = "transformers", folder_reference(path)
        elif is_onnx(path):
            text = isinstance(source, TextSource)
            length = text_length(path) if text else tokens
            name, reference = "onnxruntime", graph_reference(path, length)
        else:
            raise InputError(
                f"Model {source.description.name} has no reference, as it is neither a folder with "
                "config.json nor an ONNX file"
            )
        difference = max(_differences(source, path, reference))
    except InputError as error:
        return {**unknown, "refused": str(error)}
    return {
        "library": f"{name} {version(name)}",
        "inputs": _INPUTS,
        "difference": difference,
        "refused": None,
    }


def _differences(
    source: Source | TextSource, path: Path, reference: Callable[..., Array]
) -> Iterator[float]:
    rng = np.random.default_rng(_SEED)
    for _ in range(_INPUTS):
        inputs = _random(source, rng)
        expected = reference(*inputs)
        if isinstance(source, Source) and is_hugging_face(path):
            expected = _pooled(source, expected)
        floats = _floats(source, inputs)
        if isinstance(source, TextSource):  # a graph of a fixed length fills the rows behind a text
            expected = expected.reshape(-1, expected.shape[-1])[: len(floats)]
        floats = floats.reshape(expected.shape)
        yield float(np.abs(floats - expected).max() / (np.abs(expected).max() or 1.0))


def _pooled(source: Source, rows: Array) -> Array:
    """Return the vector that Sentence Transformers makes from rows; rows if there is a head."""
    model = source.description
    if model.classes or model.pooling == "none":
        return rows
    row = rows[:1] if model.pooling == "class" else rows.mean(axis=0, keepdims=True)
    return unit_rows(row) if model.unit else np.asarray(row)


def _random(source: Source | TextSource, rng: np.random.Generator) -> list[Values]:
    """Return a random input: values, a text's tokens, or a source's tokens and a text's."""
    if isinstance(source, Source):
        return [source.random(rng)]
    model = source.description
    lengths = [min(_LENGTH, limit) for limit in (model.source_positions, model.positions) if limit]
    return [rng.integers(0, model.vocabulary, length) for length in lengths]


def _floats(source: Source | TextSource, inputs: list[Values]) -> Array:
    if isinstance(source, Source):
        return np.asarray(source.floats(source.prepare(inputs[0])))
    model, cache = source.description, KvCache()
    if model.source_layers:
        forward(model, source.weights, np.asarray(inputs[0])[None], cache, source=True)
    tokens = np.asarray(inputs[-1])[None]
    return np.asarray(forward(model, source.weights, tokens, cache)["logits"][0])
