"""Runs a model on inputs of its own form: every tensor, and the outputs against the floats'."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from generators.compiler import Options, compile_model
from generators.frontend.embedding import lookup
from generators.frontend.source import Source
from generators.reference.float_model import forward
from generators.sources import load_source, read_samples
from tb.inference import Progress, run_inferences
from tb.machines import PROMPT, check_simulator
from tb.memory_timing import MemoryTiming

Inputs = Sequence[NDArray[np.generic]]
_Item = TypeVar("_Item")


def run_inputs(
    model: str,
    config: Config,
    simulator: str,
    inputs: Path,
    *,
    calibration: Path | None = None,
    tokens: int = 0,
    count: int | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
) -> dict[str, Any]:
    """Run a model on the first ``count`` inputs of a file, or on all.

    It is calibrated on another file's, or on the same ones. The figures are those of
    :func:`run_source`. Raises :class:`InputError` where the model, the simulator, a file or the
    count cannot be used.
    """
    check_simulator(simulator)
    source = load_source(model, tokens)
    given = read_samples(inputs, source)
    samples = given if calibration is None else read_samples(calibration, source)
    chosen = first(given, count, "inputs")
    figures = run_source(source, chosen, samples, config, simulator, progress, options, timing)
    return {"model": model, **figures}


def first(inputs: Sequence[_Item], count: int | None, name: str) -> Sequence[_Item]:
    """Return the first inputs, all where no count is given.

    Raises :class:`InputError` where there are not so many.
    """
    count = len(inputs) if count is None else count
    if not 1 <= count <= len(inputs):
        raise InputError(f"Count of {name} must be from 1 to {len(inputs)}, not {count}")
    return inputs[:count]


def run_source(
    source: Source,
    inputs: Inputs,
    samples: Inputs,
    config: Config,
    simulator: str,
    progress: Progress | None = None,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
) -> dict[str, Any]:
    """Compile a model, calibrated on samples, and run it on inputs.

    The figures are those of :meth:`tb.inference.Inferences.figures`; the program works on all
    ``tokens`` tokens whatever an input's length. ``cosine_mean`` and ``cosine_worst`` compare
    each output with the float model's, ``similarities`` the first input's output, or the mean of
    its rows, with each of the others'. ``compile_seconds`` includes calibration.
    """
    model, weights = source.description, source.weights
    begin = time.perf_counter()
    compiled = compile_model(model, weights, samples, config.replace(trace=True), options)
    seconds = time.perf_counter() - begin
    linear = model.embedding == "linear"
    rows = [
        np.asarray(each, np.float64) if linear else lookup(model, weights, each[None])[0]
        for each in inputs
    ]
    found = run_inferences(compiled, simulator, rows, timing, progress)
    floats = [forward(model, weights, each[None])["output"][0] for each in inputs]
    # Without pooling a row stands for a token; those behind the last token mean nothing.
    outputs = [output[: len(exact)] for output, exact in zip(found.outputs, floats, strict=True)]
    cosines = [cosine(output, exact) for output, exact in zip(outputs, floats, strict=True)]
    means = [output.mean(axis=0) for output in outputs]
    return {
        "config": config.name,
        "simulator": simulator,
        "memory": timing.fields(),
        "count": len(inputs),
        "tokens": model.tokens,
        "lengths": [len(each) for each in inputs],
        "cosine_mean": float(np.mean(cosines)),
        "cosine_worst": min(cosines),
        "similarities": [cosine(means[0], mean) for mean in means[1:]],
        "compile_seconds": seconds,
        **found.figures(),
    }


def cosine(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the cosine of the angle between two outputs, taken as vectors; 1 of two zeros."""
    a, b = one.ravel(), other.ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else float(np.array_equal(a, b))
