"""Fuzzing with random models on random machines: tensors must equal the integer reference's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.campaign.case import Case
from celosia.generators.frontend.embedding import accelerator_rows
from celosia.generators.frontend.weights import Weights
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.options import Options
from celosia.generators.quantize.options import INT8, MIXED
from celosia.tb.models.inference import infer
from celosia.tb.models.self_check import encoder_error
from celosia.tb.verify.fuzz import texts
from celosia.tb.verify.fuzz.machines import circuit, random_format, random_machine, simulated
from celosia.tb.verify.random_models import random_inputs, random_model, random_weights

_TRIES = 1000  # of pairs of a machine and a model; about one in five is not refused
_TURN = 16  # cases: four are decoders; one decoder and one encoder also run on the circuit
_DECODERS, _CIRCUITS = (2, 7, 10, 15), (11, 15)


def run(case: Case) -> dict[str, Any]:
    """Compile a random model for a random machine, and check every tensor; return a dictionary.

    - ``mismatch``: the first error, or an empty text.
    - ``refused``: number of pairs of a machine and a model that were refused before.
    - ``words``: length of the program.
    - ``cycles``: in one case of eight, which also runs on the circuit: cycles of an inference or of
      the last token.
    """
    rng = case.rng()
    place = case.index % _TURN
    trial = texts.trial if place in _DECODERS else _trial
    for refused in range(_TRIES):
        try:
            return {**trial(rng, on_circuit=place in _CIRCUITS), "refused": refused}
        except InputError:
            continue
    return {"mismatch": f"{_TRIES} pairs of a machine and a model were refused", "refused": _TRIES}


def _trial(rng: np.random.Generator, *, on_circuit: bool) -> dict[str, Any]:
    """Return the outcome of an encoder; raise :class:`InputError` if the pair is refused."""
    config, model = random_machine(rng), random_model(rng)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model)
    config = simulated(config) if on_circuit else config
    options = replace(
        random_options(rng, config),
        batch=1 + int(rng.random() < 0.2 and not model.variable),
        search=bool(rng.random() < 0.1),
    )
    compiled = compile_model(model, weights, inputs, config, options)
    mismatch = differs(compiled, weights, inputs[: options.batch])
    result = {"mismatch": mismatch, "words": len(compiled.words)}
    if result["mismatch"] or not on_circuit:
        return result
    with circuit(rng, compiled.config, compiled.memory_bytes) as (machine, timing):
        values = [
            accelerator_rows(model, weights, sample[None])[0]
            for sample in inputs[: 2 * options.batch]
        ]
        figures = infer(machine, compiled, values, timing).figures()
    if figures["mismatches"]:
        result["mismatch"] = f"{figures['mismatches']} tensors of the circuit differ"
    counted = figures["cycles_per_inference"]
    if config.throttle:
        return result  # it may be hot, which no prediction knows
    return result | {"cycles": counted, "predicted": figures["predicted_cycles"]}


def random_options(rng: np.random.Generator, config: Config) -> Options:
    """Return random options for compiling an encoder, with the search for fast programs off."""
    mixed, (others,) = config.array.wide and rng.random() < 0.5, rng.spawn(1)
    return Options(
        search=False,
        activations=MIXED if mixed else INT8,
        sparse=config.sparse_lanes > 0,
        wide_functions=config.wide_functions and bool(rng.integers(2)),
        percentile=float(others.choice((90.0, 100.0, 100.0))),
        per_channel=bool(others.random() < 0.8),
        balance=None if others.random() < 0.8 else float(others.random()),
        **random_format(rng, config),
    )


def differs(compiled: Artefact, weights: Weights, inputs: Sequence[NDArray[Any]]) -> str:
    """Return the first error of a compiled encoder as a sentence, or an empty text.

    An error is a race of engines, or a tensor on the golden machine that differs from the integer
    reference. ``inputs`` are inputs of the float model, and ``weights`` its weights, for an
    embedding that the host computes.
    """
    model = compiled.graph.description
    return encoder_error(
        compiled, [accelerator_rows(model, weights, sample[None])[0] for sample in inputs]
    )
