"""Runs a trained model of texts on a machine: every tensor, and the embeddings against floats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import generators
from arch.config import Config
from generators.compiler import CompiledModel, Options, compile_model
from generators.frontend.source import Source
from generators.frontend.tokenizer import read_sentences
from generators.sources import load_source
from tb.inference import Progress
from tb.machines import PROMPT, check_simulator
from tb.memory_timing import MemoryTiming
from tb.run_inputs import first, run_source

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

    The figures are those of :func:`tb.run_inputs.run_source`.

    Raises :class:`InputError` where the model, the simulator, a file or the count cannot be used.
    """
    check_simulator(simulator)
    source = load_source(model, tokens)
    texts = first(read_sentences(sentences), count, "sentences")
    samples = [source.encode(text) for text in read_sentences(calibration or CALIBRATION)]
    numbers = [source.encode(text) for text in texts]
    figures = run_source(source, numbers, samples, config, simulator, progress, options, timing)
    return {"model": model, **figures}


def compile_sentences(
    source: Source, samples: Sequence[str], config: Config, options: Options | None = None
) -> CompiledModel:
    """Return a model compiled for a configuration, calibrated on texts.

    Raises :class:`InputError` where it takes no texts or does not fit the configuration.
    """
    numbers = [source.encode(text) for text in samples]
    return compile_model(source.description, source.weights, numbers, config, options)
