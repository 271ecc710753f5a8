"""Time and memory of compiling a model, and its predicted cycles."""

import dataclasses
import resource
import sys
import time
from typing import Any

from celosia.arch.config import Config
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.run_inputs import CALIBRATION


def bench_compile(model: str, config: Config, timing: MemoryTiming) -> dict[str, Any]:
    """Compile a model of texts, or of the digits, and return figures.

    ``seconds`` are those from float weights to the program, including calibration;
    ``processor_seconds`` those of processor time. ``peak_bytes`` is the most memory of the process
    so far. ``predicted_cycles`` and ``predicted_utilization`` are for an external memory of some
    timing; ``plan`` holds the choices of the search.

    Raises :class:`InputError` if the model is unknown, or does not fit the configuration.
    """
    source = load_source(model)
    begin, worked = time.perf_counter(), time.process_time()
    if source.tokenizer is None:
        compiled = compile_digits(model, config)
    else:
        samples = read_samples(CALIBRATION, source, calibration=True)
        compiled = compile_model(source.description, source.weights, samples, config)
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    # Linux counts in units of 1024 bytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    expected = compiled.predict(timing.latency, timing.interval)
    ideal = -(-compiled.macs() // config.elements)
    return {
        "model": model,
        "config": config.name,
        "memory": timing.fields(),
        "seconds": seconds,
        "processor_seconds": worked,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "predicted_cycles": expected.cycles,
        "ideal_cycles": ideal,
        "predicted_utilization": ideal / expected.cycles,
        "least_bytes": compiled.least_bytes(),
        "program_words": len(compiled.words),
        "program_depth": config.control.program_depth,
        "plan": dataclasses.asdict(compiled.plan),
    }
