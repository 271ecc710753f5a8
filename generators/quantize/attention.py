"""Quantizes attention: its scores, probabilities and results.

The softmax raises 2 to the power of each score; the unit of scores is 2**-8.
"""

import math

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.functions import OCTAVE_FRACTION, PROBABILITY_FRACTION
from celosia.arch.isa import IMMEDIATE_WIDTH
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph import network
from celosia.generators.graph.network import Description, Home
from celosia.generators.graph.operations import Attention, Head
from celosia.generators.graph.tensors import Rescale, Tensor, rescale_of
from celosia.generators.quantize.options import NARROW_BITS
from celosia.generators.quantize.tensor_steps import Steps

_UNITS = 2.0**PROBABILITY_FRACTION


def quantize_attention(
    model: Description,
    weights: Weights,
    steps: Steps,
    node: network.Attention,
    kv_bits: int,
    block: int,
    *,
    deferred: bool,
) -> Attention:
    """Return the quantized operation of the float attention layer ``node``.

    ``kv_bits`` is the stored bits of each element of keys and values. If ``block`` is not 0, each
    ``block`` adjacent columns of values share an exponent. If ``deferred`` is true, the softmax's
    sum divides the attention result instead of each probability.
    """
    query, key, value, target = (
        steps.tensor(tensor_value)
        for tensor_value in (node.query, node.key, node.value, node.target)
    )
    products, raised = steps.products(node)
    upper = 1 << NARROW_BITS - kv_bits  # steps of keys and values in one that is kept
    whole = steps.heads.full_width_columns if node.key.home is Home.CACHE else 0
    products = products * (1 if whole else upper)
    octaves = math.log2(math.e) * 2.0**OCTAVE_FRACTION / math.sqrt(model.head_dim)
    heads = []
    for index in range(model.heads):
        scale = steps.probability_scale(node, index)
        gain = scale * (float(weights[node.gain][0]) if node.gain else 1.0)
        kept = (1, -0.5) if block else (upper, upper // 2)
        context = _context(model, index, gain, value, target, *kept)
        if model.shaped:
            shape = index, steps.graph.rows
            heads.append(_shaped(model, weights, node.prefix, *shape, scale, context))
        else:
            heads.append(Head(rescale_of(0, 1 / (_UNITS * scale)), context, None))
    return Attention(
        query=query,
        key=key,
        value=value,
        target=target,
        head_dim=model.head_dim,
        scores=rescale_of(np.rint(raised / products), products * octaves),
        probability_zero=steps.probability_zero,
        heads=tuple(heads),
        residual=node.residual is not None,
        variable=node.variable,
        kv_bits=kv_bits,
        full_width_key_columns=whole,
        block=block,
        deferred=deferred,
        window=node.window,
        global_tokens=node.global_tokens,
    )


def _context(
    model: Description,
    index: int,
    scale: float,
    value: Tensor,
    target: Tensor,
    upper: int,
    middle: float,
) -> Rescale:
    """Return the parameters from sums over a head's probabilities and values to the target.

    ``scale`` is the step of probabilities times the context's factor. ``upper`` is the number of
    steps of values in a kept one, which stands for the value ``middle`` steps above it.
    """
    width, group = model.head_dim, model.heads // model.kv_heads
    shared = slice(index // group * width, (index // group + 1) * width)
    own = slice(index * width, (index + 1) * width)
    factors, bias = np.ones(1), np.zeros(1)
    if value.gains is not None:
        factors = value.gains[shared]
    if value.offsets is not None:
        # Probabilities sum to one, so an offset taken from all values is missing in their mean.
        by_column = np.broadcast_to(value.steps, value.columns)[shared]
        missing = value.offsets[shared] + by_column * middle
        bias = np.rint(missing / (scale * by_column * upper))
    if target.gains is not None:
        factors = factors / target.gains[own]
    biases = np.broadcast_to(bias, factors.shape)
    return rescale_of(biases, factors * (scale * upper * value.scale / target.scale))


def _shaped(
    model: Description,
    weights: Weights,
    prefix: str,
    index: int,
    rows: int,
    scale: float,
    context: Rescale,
) -> Head:
    """Return ``beta * (p + alpha / beta * I - gamma / (beta * rows))``."""
    alpha, beta, gamma = (
        float(weights[f"{prefix}.{name}"][index]) for name in ("alpha", "beta", "gamma")
    )
    limit = 1 << (IMMEDIATE_WIDTH - 1)
    mean = gamma / rows
    if max(abs(alpha), abs(mean)) * _UNITS >= abs(beta) * limit:
        raise InputError(
            f"Shaped attention of head {index} in {prefix} of model {model.name} needs "
            f"alpha and gamma less than {limit / _UNITS:g} times beta; alpha is {alpha:g}, "
            f"beta is {beta:g} and gamma is {gamma:g}"
        )
    probabilities = rescale_of(round(-mean / beta * _UNITS), beta / (_UNITS * scale))
    return Head(probabilities, context, round(alpha / beta * _UNITS))
