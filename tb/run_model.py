"""Runs a trained model on a machine and compares every tensor with the golden machine's."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from generators.compiler import CompiledModel, Options, compile_model
from generators.frontend import digits
from generators.frontend.source import Source
from generators.frontend.weights import model_names
from generators.reference.floats import forward
from generators.sources import load_source
from tb.inference import Inferences, ModelMachine, Progress, infer, run_inferences
from tb.machines import PROMPT, check_simulator
from tb.memory_timing import ONCHIP, MemoryTiming

CALIBRATION_IMAGES = 256


def compile_digits(model: str, config: Config, options: Options | None = None) -> CompiledModel:
    """Return a model compiled for a configuration, calibrated on the digits' training images.

    Raises :class:`InputError` where there is no such model, where it does not take the digits, or
    where it does not fit the configuration.
    """
    source = _load(model)
    inputs = _calibration_images()
    return compile_model(source.description, source.weights, inputs, config, options)


def _calibration_images() -> NDArray[np.float64]:
    train, _ = digits.load()
    return digits.patches(train.images[:CALIBRATION_IMAGES])


def _load(model: str) -> Source:
    """Return a model that the digits are for: one that comes with the package."""
    source = load_source(model)
    if model in model_names():
        return source
    if source.tokenizer is not None:
        raise InputError(f"Model {model} takes texts; give them with --sentences FILE")
    shape = source.shape or (source.description.tokens, source.description.features)
    if source.description.embedding == "tokens":
        shape = (source.description.tokens,)
    text = ", ".join(map(str, ("count", *shape)))
    raise InputError(
        f"Model {model} takes inputs of its own, [{text}]; give them with --inputs FILE.npy, or "
        "ask for random ones with --random COUNT"
    )


def run_model(
    model: str,
    config: Config,
    simulator: str,
    count: int | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
) -> dict[str, Any]:
    """Run a model of the digits on the first ``count`` images of the digits' test split, or on all.

    The figures are those of :meth:`tb.inference.Inferences.figures`; ``accuracy`` is that of the
    machine's outputs, ``float_accuracy`` that of the float model on the same images.

    Raises :class:`InputError` where the model, the simulator or the count cannot be used.
    """
    check_simulator(simulator)
    inputs = digit_inputs(count)
    config = config.replace(trace=True)
    compiled = compile_digits(model, config, options)
    found = run_inferences(compiled, simulator, inputs, timing, progress)
    return _figures(model, simulator, inputs, found)


def run_hosted(
    model: str,
    config: Config,
    machine: ModelMachine,
    memory_bytes: int,
    count: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a model as :func:`run_model` does, on a machine with its own external memory on the chip.

    Raises :class:`InputError` where the model or the count cannot be used, or the model needs
    more memory than there is.
    """
    inputs = digit_inputs(count)
    compiled = compile_digits(model, config.replace(trace=False))
    if compiled.memory_bytes > memory_bytes:
        raise InputError(
            f"Model {model} needs {compiled.memory_bytes} bytes of external memory, but the board "
            f"has {memory_bytes}"
        )
    found = infer(machine, compiled, inputs, ONCHIP, progress)
    return _figures(model, "board", inputs, found)


def digit_inputs(count: int | None) -> NDArray[np.float64]:
    """Return the first images of the digits' test split, or all, as the models take them.

    Raises :class:`InputError` where there are not so many.
    """
    _, test = digits.load()
    if count is None:
        count = len(test.labels)
    if not 1 <= count <= len(test.labels):
        raise InputError(f"Count of images must be from 1 to {len(test.labels)}, not {count}")
    return digits.patches(test.images[:count])


def _figures(
    model: str, simulator: str, inputs: NDArray[np.float64], found: Inferences
) -> dict[str, Any]:
    count = len(inputs)
    _, test = digits.load()
    labels = test.labels[:count]
    predictions = [int(np.argmax(output[0])) for output in found.outputs]
    source = _load(model)
    apart = found.compiled.parting(source.weights, _calibration_images())
    floats = forward(source.description, source.weights, inputs)["output"][:, 0].argmax(axis=-1)
    return {
        "model": model,
        "config": found.compiled.config.name,
        "simulator": simulator,
        "memory": found.timing.fields(),
        "count": count,
        "accuracy": float(np.mean(np.array(predictions) == labels)),
        "float_accuracy": float(np.mean(floats == labels)),
        "predictions": predictions,
        "labels": labels.tolist(),
        "calibration": apart.figures(),
        **found.figures(),
    }
