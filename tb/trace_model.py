"""One inference of a trained model, recorded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.isa import Engine
from generators import digits
from generators.compiler import CompiledModel, Options
from generators.golden import GoldenModel
from sim.report import engine_cycles
from tb.machines import PROMPT, make_machine
from tb.memory_timing import MemoryTiming
from tb.operations import Operation, operations
from tb.places import Place, places
from tb.recording import Recording
from tb.run_model import compile_digits

WINDOWS = 1000
"""Windows that a run is cut into, about."""


@dataclass(frozen=True)
class Traced:
    """A recorded inference, what its commands are for, and its figures."""

    recording: Recording
    places: list[Place]
    operations: list[Operation]
    figures: dict[str, Any]


def trace_model(
    model: str,
    config: Config,
    simulator: str,
    options: Options | None = None,
    timing: MemoryTiming = PROMPT,
) -> Traced:
    """Run a model once, on the first image of the digits' test split, and record it.

    Raises :class:`ValueError` where the model or the simulator cannot be used.
    """
    _check(simulator)
    compiled = compile_digits(model, config.replace(trace=True), options)
    _, test = digits.load()
    values = digits.patches(test.images[:1])[0]
    return trace_inference(compiled, values, simulator, timing)


def _check(simulator: str) -> None:
    if simulator == "golden":
        raise ValueError("The golden machine has no clock to trace; use verilator or icarus")


def trace_inference(
    compiled: CompiledModel,
    values: NDArray[np.floating],
    simulator: str,
    timing: MemoryTiming = PROMPT,
) -> Traced:
    """Run a compiled model once, on an input as its ``request`` takes it, and record it.

    The configuration must have ``trace``. ``mismatches`` among the figures is the number of tensors
    that differ from the golden machine's.

    Raises :class:`ValueError` where the simulator cannot be used.
    """
    _check(simulator)
    config = compiled.config
    machine = make_machine(config, simulator, compiled.memory_bytes, timing)
    machine.write_memory(0, compiled.image.tobytes())
    machine.load_program(compiled.words)
    ideal = -(-compiled.macs // config.elements)
    machine.record(max(16, ideal // WINDOWS))
    compiled.request(values).give(machine)
    report = machine.start()
    output = compiled.read_output(machine.read_memory(compiled.output_addr, compiled.output_count))
    expected, reference = GoldenModel(compiled).run(values)
    pairs = zip(report.signatures, reference.signatures, strict=True)
    recording = machine.recordings[-1]
    found = places(recording.commands, compiled.written, config)
    done = operations(recording, found, config)
    names = [engine.name.lower() for engine in Engine]
    figures = {
        "model": compiled.quantized.description.name,
        "config": config.name,
        "simulator": simulator,
        "memory": timing.fields(),
        "cycles": report.cycles,
        "ideal_cycles": ideal,
        "utilization": ideal / report.cycles,
        "mismatches": sum(a != b for a, b in pairs) + int(not np.array_equal(output, expected)),
        "commands": len(recording.commands),
        "where": report.where,
        "engines": {name: engine_cycles(report.counters, name) for name in names},
        "counters": report.counters,
        "operations": [
            {
                "name": operation.name,
                "cycles": operation.cycles,
                "macs": operation.macs,
                "utilization": operation.utilization(config),
                "loaded_bytes": operation.loaded,
                "stored_bytes": operation.stored,
            }
            for operation in done
        ],
    }
    return Traced(recording, found, done, figures)
