"""Runs a model on inputs in its form: compares every tensor, and the outputs with the floats'."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.sample_files import (
    count_cut,
    input_files,
    read_classified,
    read_labels,
    read_samples,
)
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.tokenizer import read_sentences
from celosia.generators.lower.encoder_compiler import CompiledModel, Options, compile_model
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.memory_timing import ONCHIP, MemoryTiming
from celosia.tb.machine.simulators import PROMPT, check_simulator
from celosia.tb.models.digits_model import read_digits
from celosia.tb.models.inference import Progress, infer, run_inferences

Inputs = Sequence[NDArray[np.generic]]
_Item = TypeVar("_Item")
CALIBRATION = Path(__file__).parents[2] / "generators" / "samples" / "sentences.txt"
"""Sentences to calibrate on if none are given."""
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Files:
    """Inputs of a run, and the outputs to compare with."""

    inputs: Path | None = None
    """Inputs in the model's form, for ``read_samples``."""
    sentences: Path | None = None
    """Texts, one in each line."""
    answers: Path | None = None
    """Texts, each followed by a tab and its right class."""
    calibration: Path | None = None
    """Inputs for calibration; by default sentences that come with the package, or the inputs."""
    labels: Path | None = None
    """The right class of each input."""
    random: int = 0
    """Number of random inputs to run on, if no file is given."""

    def given(self) -> bool:
        """Return whether there is anything to run on."""
        return bool(self.inputs or self.sentences or self.answers or self.random)


NO_FILES = Files()
"""No files: models of the digits run on their test split."""


@dataclass(frozen=True)
class Ran:
    """Figures by name, and the outputs of the whole model, one for each input."""

    figures: dict[str, Any]
    outputs: list[NDArray[np.float64]]


def run_files(
    model: str,
    config: Config,
    machine: str | Machine,
    files: Files = NO_FILES,
    *,
    tokens: int = 0,
    count: int | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> Ran:
    """Run a model on the first ``count`` inputs of a file, or on all.

    If no file is given, these are the images of the digits' test split, for a model of these.
    ``machine`` is a simulator's name, or a machine with ``memory_bytes`` of external memory on its
    chip. Runs read ``bits`` of nested weights in turn.

    The figures are those of :meth:`celosia.tb.models.inference.Inferences.figures`; the program
    processes all ``tokens`` tokens for an input of any length. ``cosine_mean`` and ``cosine_worst``
    compare each output of the whole model, including the host's part, with the float model's.
    ``cut`` is the number of inputs that are longer than the model's. ``similarities`` compares the
    first input's output, or the mean of its rows, with each of the others'.

    ``predictions`` are the largest column of each output that is one row of several columns,
    otherwise None. With labels ``accuracy`` and ``float_accuracy`` are the fractions of outputs,
    and of the floats, whose largest column is the label's. ``host`` names the host's operations.
    ``calibration`` measures how far integers are from floats on the first calibration inputs.
    ``compile_seconds`` includes calibration.

    Raises :class:`InputError` if the model, the simulator, a file or the count cannot be used.
    """
    if isinstance(machine, str):
        check_simulator(machine)
    if sum(map(bool, (files.inputs, files.sentences, files.answers, files.random))) > 1:
        raise InputError("Options --inputs, --sentences and --answers exclude each other")
    source = load_source(model, tokens)
    chosen, samples, labels = read_inputs(model, source, files, count)
    description, weights = source.description, source.weights
    begin = time.perf_counter()
    traced = config.replace(trace=isinstance(machine, str))
    compiled = compile_model(description, weights, samples, traced, options)
    seconds = time.perf_counter() - begin
    if memory_bytes is not None:
        check_room(compiled, memory_bytes)
    rows = [source.rows(each) for each in chosen]
    if isinstance(machine, str):
        inferences = run_inferences(compiled, machine, rows, timing, progress, bits=bits)
    else:
        inferences = infer(machine, compiled, rows, ONCHIP, progress, bits)
    exact = [forward(description, weights, each[None])["output"][0] for each in chosen]
    # Without pooling a row stands for a token; those behind the last token mean nothing.
    outputs = [
        np.asarray(source.finish(output[: len(floats)], each), np.float64)
        for output, floats, each in zip(inferences.outputs, exact, chosen, strict=True)
    ]
    figures = {
        "model": model,
        "config": config.name,
        "simulator": machine if isinstance(machine, str) else "board",
        "memory": inferences.timing.fields(),
        "count": len(chosen),
        "weights": (options or Options()).weights,
        "bits": [*bits],
        "tokens": description.tokens,
        "lengths": [len(each) for each in chosen],
        "cut": _cut(source, files, count),
        **_compared(outputs, [*map(source.finish, exact, chosen)], labels),
        "host": [step.name for step in (*source.before, *source.after)],
        "unused": list(source.unused),
        "names": list(source.labels),
        "compile_seconds": seconds,
        "calibration": compiled.parting(weights, samples).figures(),
        **inferences.figures(),
    }
    return Ran(figures, outputs)


def read_inputs(
    model: str, source: Source, files: Files, count: int | None
) -> tuple[Inputs, Inputs, NDArray[np.int64] | None]:
    """Return the prepared inputs to run on, those to calibrate on, and the labels of the first.

    Raises :class:`InputError` if a file or the count cannot be used, or if the number of labels is
    not that of the file's inputs. It is also raised if no file is given for a model that does not
    accept the digits.
    """
    if not files.given():
        samples, images, right = read_digits(model, source)
        return first(list(images), count, "images"), list(samples), right
    labels = None
    if files.labels is not None:
        folder = files.inputs is not None and files.inputs.is_dir()
        named = input_files(files.inputs) if folder and files.inputs is not None else ()
        labels = read_labels(files.labels, source, named)
    if files.answers is not None and files.labels is not None:
        raise InputError("Option --labels is not for --answers, which has the right classes")
    if files.sentences is not None or files.answers is not None:
        if files.answers is not None:
            sentences, labels = read_classified(files.answers, source)
        elif files.sentences is not None:
            sentences = read_sentences(files.sentences)
            _check_count(files.labels, labels, len(sentences))
        texts = first(sentences, count, "sentences")
        chosen: Inputs = [source.prepare(source.encode(text)) for text in texts]
        samples = read_samples(files.calibration or CALIBRATION, source, calibration=True)
        return chosen, samples, labels
    if files.inputs is not None:
        inputs = read_samples(files.inputs, source)
        _check_count(files.labels, labels, len(inputs))
        chosen = first(inputs, count, "inputs")
    else:
        _check_count(files.labels, labels, files.random)
        rng = np.random.default_rng(_SEED)
        inputs = [source.prepare(source.random(rng)) for _ in range(files.random)]
        chosen = first(inputs, count, "inputs")
    if files.calibration is not None:
        return chosen, read_samples(files.calibration, source, calibration=True), labels
    return chosen, inputs, labels


def _check_count(path: Path | None, labels: Sequence[int] | NDArray[np.int64] | None, count: int):
    if labels is not None and len(labels) != count:
        raise InputError(
            f"File {path} must have a label for each of {count} inputs, not {len(labels)}"
        )


def _cut(source: Source, files: Files, count: int | None) -> int:
    """Return the number of inputs that are cut because they are longer than the model's."""
    if files.answers is not None:
        return source.cut(read_classified(files.answers, source)[0][:count])
    if files.sentences is not None:
        return source.cut(read_sentences(files.sentences)[:count])
    if files.inputs is not None and files.inputs.is_dir():
        return count_cut(files.inputs, source, count)
    return 0


def _compared(
    outputs: Sequence[NDArray[Any]],
    floats: Sequence[NDArray[Any]],
    labels: NDArray[np.int64] | None,
) -> dict[str, Any]:
    """Return the closeness of outputs to the floats', and the classes that both predict."""
    means = [np.atleast_2d(output).mean(axis=0) for output in outputs]
    cosines = [cosine(*pair) for pair in zip(outputs, floats, strict=True)]
    figures: dict[str, Any] = {
        "cosine_mean": float(np.mean(cosines)),
        "cosine_worst": min(cosines),
        "similarities": [cosine(means[0], mean) for mean in means[1:]],
        "predictions": None,
    }
    if not all(output.size == output.shape[-1] > 1 for output in outputs):
        return figures
    predicted, exact = (np.array([each.argmax() for each in some]) for some in (outputs, floats))
    figures["predictions"] = predicted.tolist()
    if labels is not None:
        right = labels[: len(predicted)]
        figures["labels"] = right.tolist()
        figures["accuracy"] = float(np.mean(predicted == right))
        figures["float_accuracy"] = float(np.mean(exact == right))
    return figures


def first(inputs: Sequence[_Item], count: int | None, name: str) -> Sequence[_Item]:
    """Return the first inputs, or all if no count is given.

    Raises :class:`InputError` if there are fewer.
    """
    count = len(inputs) if count is None else count
    if not 1 <= count <= len(inputs):
        raise InputError(f"Count of {name} must be from 1 to {len(inputs)}, not {count}")
    return inputs[:count]


def check_room(compiled: CompiledModel, memory_bytes: int) -> None:
    """Raise :class:`InputError` if a model needs more external memory than a board has."""
    if compiled.memory_bytes > memory_bytes:
        raise InputError(
            f"Model {compiled.quantized.description.name} needs {compiled.memory_bytes} bytes of "
            f"external memory, but the board has {memory_bytes}"
        )


def cosine(output: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the cosine of the angle between two outputs as vectors; 1 for two zeros."""
    a, b = output.ravel(), other.ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else float(np.array_equal(a, b))
