"""Models that are compiled and compared, tensor by tensor, with one that knows no tiles."""

import numpy as np

from celosia.arch.config import Config
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.tb.verify.fuzz.models import differs
from celosia.tb.verify.random_models import random_inputs, random_weights, with_zero_tiles

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


def refusal_or_case(seed: int, model: ModelDescription, config: Config):
    """Return the compiled model, or the sentence that refuses it."""
    try:
        return random_case(seed, model, config)
    except ValueError as error:
        return str(error)
