"""Runs a trained model on a machine and compares every tensor with the golden machine's."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from arch.config import Config
from arch.isa import Engine
from generators import digits
from generators.compiler import CompiledModel, Options, compile_model
from generators.float_model import forward
from generators.golden import GoldenModel
from generators.weights import load_model
from sim.report import engine_cycles, where
from tb.machines import make_machine

CALIBRATION_IMAGES = 256

Progress = Callable[[int, int], None]


def compile_digits(model: str, config: Config, options: Options | None = None) -> CompiledModel:
    """Return a model compiled for a configuration, calibrated on the digits' training images.

    Raises :class:`ValueError` where there is no such model, where it does not take the digits, or
    where it does not fit the configuration.
    """
    description, weights = load_model(model)
    train, _ = digits.load()
    inputs = digits.patches(train.images[:CALIBRATION_IMAGES])
    return compile_model(description, weights, inputs, config, options)


def run_model(
    model: str,
    config: Config,
    simulator: str,
    count: int | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
) -> dict[str, Any]:
    """Run a model on the first ``count`` images of the digits' test split, or on all.

    ``mismatches`` is the number of tensors (one per vector instruction and image, by the signature
    of all bytes written, and the output) that differ from the golden machine's.
    ``accuracy`` is that of the machine's outputs, ``float_accuracy`` that of the float model on
    the same images; ``utilization`` is useful products over elements times cycles. ``where`` gives
    the cycles by what the array did (``sim.report.where``), ``engines`` those of each engine.

    Raises :class:`ValueError` where the model, the simulator or the count cannot be used.
    """
    _, test = digits.load()
    if count is None:
        count = len(test.labels)
    if not 1 <= count <= len(test.labels):
        raise ValueError(f"Count of images must be from 1 to {len(test.labels)}, not {count}")
    config = config.replace(trace=True)
    compiled = compile_digits(model, config, options)
    machine = make_machine(config, simulator, compiled.memory_bytes)
    machine.write_memory(0, compiled.image.tobytes())
    machine.load_program(compiled.words)
    golden = GoldenModel(compiled)
    inputs = digits.patches(test.images[:count])
    cycles, mismatches, tensors, right, seconds = 0, 0, 0, 0, 0.0
    spent: Counter[str] = Counter()
    for index, values in enumerate(inputs):
        begin = time.perf_counter()
        compiled.request(values).give(machine)
        report = machine.start()
        data = machine.read_memory(compiled.output_addr, compiled.output_count)
        seconds += time.perf_counter() - begin
        output = compiled.read_output(data)
        expected, reference = golden.run(values)
        pairs = zip(report.signatures, reference.signatures, strict=True)
        mismatches += sum(found != wanted for found, wanted in pairs)
        mismatches += int(not np.array_equal(output, expected))
        tensors += len(report.signatures) + 1
        cycles += report.cycles
        spent.update(report.counters)
        right += int(np.argmax(output[0]) == test.labels[index])
        if progress is not None:
            progress(index + 1, count)
    description, weights = load_model(model)
    floats = forward(description, weights, inputs)["output"][:, 0].argmax(axis=-1)
    ideal = -(-compiled.macs // config.elements)
    engines = [engine.name.lower() for engine in Engine] if cycles else []
    return {
        "model": model,
        "config": config.name,
        "simulator": simulator,
        "count": count,
        "accuracy": right / count,
        "float_accuracy": float(np.mean(floats == test.labels[:count])),
        "mismatches": mismatches,
        "tensors": tensors,
        "cycles": cycles,
        "cycles_per_inference": cycles / count,
        "ideal_cycles": ideal,
        "utilization": ideal * count / cycles if cycles else None,
        "cycles_per_second": cycles / seconds if cycles else None,
        "where": where(spent) if cycles else {},
        "engines": {name: engine_cycles(spent, name) for name in engines},
        "counters": dict(spent),
        "program_words": len(compiled.words),
        "macs": compiled.macs,
    }
