"""Language models of a given shape with random weights, for tests and predictions of speed."""

from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.tables import read_table
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder

SHAPES = {
    name: TextDescription(name=name, **values)
    for name, values in read_table(Path(__file__).with_suffix(".toml")).items()
}
"""Shapes by name: Karpathy's models of llama2.c."""
STORIES260K = SHAPES["stories260K"]


def untrained(
    model: TextDescription, options: Quantization, seed: int = 1, sparsity: float = 0.0
) -> Decoder:
    """Return a quantized decoder with random weights.

    ``seed`` is the seed of the weights, and ``sparsity`` is the share of the layers' weights that
    are 0. A program for the decoder has the same cycles with trained weights. Raises
    :class:`InputError` if ``sparsity`` is not from 0 to 1.
    """
    return quantize_decoder(model, random_weights(model, seed, sparsity), 0, options)


def random_weights(model: TextDescription, seed: int = 1, sparsity: float = 0.0) -> Weights:
    """Return a dictionary from the name of each weight tensor of a model to random weights.

    The weights are scaled so that activations have similar magnitudes in all layers. ``sparsity``,
    from 0 to 1, is the share of the layers' weights that are 0. Raises :class:`InputError` if
    ``sparsity`` is out of range.
    """
    if not 0 <= sparsity <= 1:
        raise InputError(f"Sparsity must be from 0 to 1, not {sparsity}")
    rng = np.random.default_rng(seed)
    weights: dict[str, Floats] = {}
    for name, shape in model.shapes().items():
        spread = 1.5 / np.sqrt(shape[-1])
        if name.endswith("norm.weight"):
            weights[name] = rng.uniform(0.5, 1.5, shape)
        else:
            weights[name] = rng.normal(0, 0.2 if len(shape) == 1 else spread, shape)
        if sparsity and name.startswith("layers.") and len(shape) > 1:
            weights[name] *= rng.random(shape) >= sparsity
    return weights
