"""Benchmark of attention: an encoder of one layer is compiled, run and measured."""

from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.trace_model import trace_compiled
from celosia.tb.verify.random_models import random_inputs, random_weights

MOST = 1 << 14
"""Largest size of a problem."""


def bench_attention(
    config: Config,
    simulator: str,
    timing: MemoryTiming,
    *,
    seq: int,
    head_dim: int,
    heads: int,
    seed: int = 1,
) -> dict[str, Any]:
    """Return measurements of an encoder layer's attention on a simulated machine, a dictionary.

    The layer has random weights and an input of ``seq`` tokens. Key ``utilization`` is the number
    of multiplications / (array elements * cycles) of attention. Key ``whole`` has cycles of the
    whole model. Raises :class:`InputError` if the model does not fit.
    """
    for name, size in (("seq", seq), ("head_dim", head_dim), ("heads", heads)):
        if not 1 <= size <= MOST:
            raise InputError(f"Size {name} of attention must be from 1 to {MOST}, not {size}")
    dim = heads * head_dim
    model = ModelDescription(
        name="attention",
        tokens=seq,
        features=dim,
        dim=dim,
        layers=1,
        heads=heads,
        ffn=config.array.cols,
    )
    rng = np.random.default_rng(seed)
    inputs, weights = random_inputs(rng, model), random_weights(rng, model)
    compiled = compile_model(model, weights, inputs, config.replace(trace=True))
    traced = trace_compiled(compiled, inputs[0], simulator, timing)
    (attention,) = (operation for operation in traced.operations if operation.kind == "attention")
    macs = 2 * heads * head_dim * seq * seq
    return {
        "config": config.name,
        "seq": seq,
        "head_dim": head_dim,
        "heads": heads,
        "seed": seed,
        "cycles": attention.cycles,
        "ideal_cycles": macs / config.elements,
        "utilization": macs / (config.elements * attention.cycles),
        "mismatches": traced.figures["mismatches"],
        "whole": {name: traced.figures[name] for name in ("cycles", "predicted_cycles", "where")},
    }
