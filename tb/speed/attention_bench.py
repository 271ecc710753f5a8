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
    """Measure the attention of an encoder layer with random weights on a simulated machine.

    ``seq`` is the number of tokens, and ``head_dim`` is the number of columns of a head. The result
    is a dictionary from the names of measurements to values:

    - ``cycles``: the number of cycles that are counted for attention (see below).
    - ``ideal_cycles``: the number of attention's multiplications divided by the number of array
      elements.
    - ``utilization``: ``ideal_cycles`` divided by ``cycles``.
    - ``whole``: a dictionary with the measurements of the whole model: ``cycles``,
      ``predicted_cycles``, and ``where`` (see :attr:`celosia.sim.report.Report.where`).

    Whether a cycle is counted for attention depends on one command:

    - If the matrix engine is busy: the command of the matrix engine.
    - If only the vector engine is busy: the command of the vector engine.
    - If the matrix engine and the vector engine are idle: the command that starts next on one of
      these engines.

    The cycle is counted if this command helps to compute scores, probabilities or context (the sums
    of values weighted by probabilities).

    Raises :class:`InputError` if the model does not fit the configuration.
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
