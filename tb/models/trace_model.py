"""Recording of one inference of a trained model on a simulated machine."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.sources import load_source
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.recording import Recording
from celosia.tb.machine.simulators import PROMPT, check_simulator
from celosia.tb.models.cycles_by_operation import Operation, operations
from celosia.tb.models.inference import run_inferences
from celosia.tb.models.places import Place, places
from celosia.tb.models.run_inputs import NO_FILES, Files, read_inputs

WINDOWS = 1000
"""Approximate number of windows that a run is divided into, at most."""

LEAST_WINDOW = 16
"""Fewest cycles of a window."""


@dataclass(frozen=True)
class Traced:
    """A recorded inference of a model."""

    recording: Recording
    places: list[Place]
    """The tensor that each recorded command helps to compute."""
    operations: list[Operation]
    """Cycles, products and memory traffic of each operation of the model."""
    figures: dict[str, Any]
    """Measurements of the inference, from name to value."""


def trace_model(
    model: str,
    config: Config,
    simulator: str,
    timing: MemoryTiming = PROMPT,
    files: Files = NO_FILES,
    tokens: int = 0,
) -> Traced:
    """Run a model on the first input from ``files``, and return the recorded inference.

    If ``files`` gives no inputs, the input is an image of a digit. An encoder that accepts any
    length is compiled for ``tokens`` tokens. Raises :class:`InputError` if the model, the simulator
    or a file cannot be used.
    """
    check_clocked(simulator)
    source = load_source(model, tokens)
    inputs, samples, _ = read_inputs(model, source, files, 1)
    config = config.replace(trace=True)
    compiled = compile_model(source.description, source.weights, samples, config)
    return trace_compiled(compiled, source.rows(inputs[0]), simulator, timing)


def check_clocked(simulator: str) -> None:
    """Raise :class:`InputError` if a simulator is unknown, or has no clock (``golden``)."""
    check_simulator(simulator)
    if simulator == "golden":
        raise InputError("The golden machine has no clock to trace; use verilator or icarus")


def trace_compiled(
    compiled: Artefact,
    values: NDArray[np.floating],
    simulator: str,
    timing: MemoryTiming,
) -> Traced:
    """Run one inference of a compiled model on a simulated machine; return the recorded inference.

    ``values`` is the inference's input. ``timing`` is the timing of external memory.
    """
    config = compiled.config
    window = max(LEAST_WINDOW, compiled.macs(rows=len(values)) // config.elements // WINDOWS)
    inferences = run_inferences(compiled, simulator, [values], timing, window=window)
    recording = inferences.recordings[0]
    named = places(recording.commands, compiled.written, config)
    done = operations(recording, named, config)
    figures = {
        "model": compiled.graph.description.name,
        "config": config.name,
        "simulator": simulator,
        "memory": timing.fields(),
        **inferences.figures(),
        "commands": len(recording.commands),
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
    return Traced(recording, named, done, figures)
