"""Models that are compiled and compared, tensor by tensor, with one that knows no tiles."""

import numpy as np

from celosia.arch.config import Config
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.tb.verify.fuzz.models import differs
from celosia.tb.verify.random_models import random_inputs, random_weights

MODEL = ModelDescription(name="toy", tokens=5, features=3, dim=12, layers=2, heads=3, ffn=10)


def run_case(model, weights, inputs, config, options=None, count=1):
    """Compile, prove the tokens, and compare every tensor of some inferences."""
    compiled = compile_model(model, weights, inputs, config, options or Options(search=False))
    assert differs(compiled, weights, inputs[:count]) == ""
    return compiled


def random_case(seed: int, model: ModelDescription, config: Config, options=None, zeros=0.0):
    """Run a case of random weights, of whose tiles ``zeros`` is the share that is 0."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng, model)
    weights = with_zero_tiles(rng, random_weights(rng, model), config, zeros)
    return run_case(model, weights, inputs, config, options)


def with_zero_tiles(rng, weights, config, share, of=""):
    """Return weights with zeros in a share of the tiles of each matrix whose name has ``of``."""
    sparse_weights = {}
    for name, value in weights.items():
        sparse_weights[name] = value
        if value.ndim == 2 and of in name and share:
            shape = -(-np.array(value.shape) // [config.array.cols, config.array.rows])
            keep = np.ones(np.prod(shape), np.bool_)
            keep[rng.permutation(keep.size)[: round(share * keep.size)]] = False
            tiles = keep.reshape(shape).repeat(config.array.cols, 0).repeat(config.array.rows, 1)
            sparse_weights[name] = np.where(tiles[: value.shape[0], : value.shape[1]], value, 0)
    return sparse_weights


def refusal_or_case(seed: int, model: ModelDescription, config: Config):
    """Return the compiled model, or the sentence that refuses it."""
    try:
        return random_case(seed, model, config)
    except ValueError as error:
        return str(error)
