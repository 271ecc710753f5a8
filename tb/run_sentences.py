"""Runs a trained model of texts on a machine: every tensor, and the embeddings against floats."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import generators
from arch.config import Config
from generators.compiler import CompiledModel, Options, compile_model
from generators.embedding import lookup
from generators.float_model import forward
from generators.sources import Source, load_source
from generators.tokenizer import read_sentences
from tb.inference import Progress, run_inferences
from tb.machines import PROMPT, check_simulator
from tb.memory_timing import MemoryTiming

CALIBRATION = Path(generators.__file__).parent / "samples" / "sentences.txt"
"""Sentences to calibrate on where none are given."""


def run_sentences(
    model: str,
    config: Config,
    simulator: str,
    sentences: Path,
    *,
    calibration: Path | None = None,
    tokens: int = 0,
    count: int | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
) -> dict[str, Any]:
    """Run a model that takes texts on the first ``count`` lines of a file, or on all.

    The figures are those of :meth:`tb.inference.Inferences.figures`; the program works on all
    ``tokens`` tokens whatever a sentence's length. ``cosine_mean`` and ``cosine_worst`` compare
    each output with the float model's, ``similarities`` the first sentence's output, or
    the mean of its rows, with each of the others'. ``compile_seconds`` includes calibration.

    Raises :class:`ValueError` where the model, the simulator, a file or the count cannot be used.
    """
    check_simulator(simulator)
    source = load_source(model, tokens)
    texts = read_sentences(sentences)
    count = len(texts) if count is None else count
    if not 1 <= count <= len(texts):
        raise ValueError(f"Count of sentences must be from 1 to {len(texts)}, not {count}")
    begin = time.perf_counter()
    samples = read_sentences(calibration or CALIBRATION)
    compiled = compile_sentences(source, samples, config.replace(trace=True), options)
    seconds = time.perf_counter() - begin
    numbers = [source.encode(text)[None] for text in texts[:count]]  # [1, n] each
    inputs = [lookup(source.description, source.weights, each)[0] for each in numbers]
    found = run_inferences(compiled, simulator, inputs, timing, progress)
    floats = [forward(source.description, source.weights, each)["output"][0] for each in numbers]
    # Without pooling a row stands for a token; those behind the last token mean nothing.
    outputs = [output[: len(exact)] for output, exact in zip(found.outputs, floats, strict=True)]
    cosines = [cosine(output, exact) for output, exact in zip(outputs, floats, strict=True)]
    means = [output.mean(axis=0) for output in outputs]
    return {
        "model": model,
        "config": config.name,
        "simulator": simulator,
        "memory": timing.fields(),
        "count": count,
        "tokens": source.description.tokens,
        "lengths": [each.shape[1] for each in numbers],
        "cosine_mean": float(np.mean(cosines)),
        "cosine_worst": min(cosines),
        "similarities": [cosine(means[0], mean) for mean in means[1:]],
        "compile_seconds": seconds,
        **found.figures(),
    }


def compile_sentences(
    source: Source, samples: Sequence[str], config: Config, options: Options | None = None
) -> CompiledModel:
    """Return a model compiled for a configuration, calibrated on texts.

    Raises :class:`ValueError` where it takes no texts or does not fit the configuration.
    """
    numbers = [source.encode(text) for text in samples]
    return compile_model(source.description, source.weights, numbers, config, options)


def cosine(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the cosine of the angle between two outputs, taken as vectors."""
    a, b = one.ravel(), other.ravel()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
