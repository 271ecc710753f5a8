"""Runs inferences of a compiled model, and compares their tensors with the golden machine's."""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import Engine
from celosia.generators.lower.artefact import Artefact
from celosia.generators.runtime.golden import GoldenModel
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.runs import Runs
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import engine_cycles, where
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.recording import Recording
from celosia.tb.machine.simulated import SimulatedMachine
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.whole_model import differing

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Run:
    """Measurements of one run of a machine, which computes one inference or a batch of them."""

    rows: int
    """Number of rows of the run's input."""
    again: bool
    """True if the run found weights and parameters on the chip, and did not load them."""
    cycles: int
    loaded: int
    """Number of words that the run read from external memory."""
    bits: int = OPERAND_BITS
    """Width (bits) at which the run read nested weights, which can be read at several widths."""


@dataclass
class Inferences:
    """Outputs and measurements of the inferences of a compiled model on a machine."""

    compiled: Host
    timing: MemoryTiming
    outputs: list[NDArray[np.float64]] = field(default_factory=list)
    """The machine's outputs, [rows, columns] each, in the model's units."""
    runs: list[Run] = field(default_factory=list)
    cycles: int = 0
    """Cycles of all inferences; 0 on a machine without a clock."""
    mismatches: int = 0
    """Number of tensors that differ from the golden machine's. The golden machine's tensors are
    compared with :func:`celosia.generators.reference.integers.evaluate`."""
    tensors: int = 0
    """Number of compared tensors: one per vector instruction, and the output. On the golden
    machine, whole tensors of the model are compared."""
    seconds: float = 0.0
    spent: Counter[str] = field(default_factory=Counter)
    """Sum of each counter of the machine over all runs."""
    recordings: list[Recording] = field(default_factory=list)
    """A recording of each run if recordings were requested, otherwise empty."""

    def figures(self) -> dict[str, Any]:
        """Return the measurements of all inferences, a dictionary from name to value.

        The values of ``ideal_cycles``, ``predicted_cycles``, ``macs`` (useful products),
        ``read_bytes`` and ``least_bytes`` are means per inference. The value of ``again`` has means
        of those inferences that found the weights on the chip. Unknown values are None or empty.
        """
        compiled, count, cycles = self.compiled, len(self.outputs), self.cycles
        model = compiled if isinstance(compiled, Artefact) else None
        config, runs = compiled.config, self.runs

        def mean(of: Callable[[Run], int], some: Sequence[Run]) -> int:
            """Return the mean of some runs for an inference."""
            return round(sum(of(run) for run in some) / (len(some) * compiled.batch))

        macs = ideal = None
        if model is not None:
            macs = mean(lambda run: model.macs(rows=run.rows), runs)
            ideal = mean(lambda run: -(-model.macs(rows=run.rows) // config.elements), runs)
        microcoded = config.micro is not None
        counted = bool(cycles) and config.control.counters
        engines = [engine.name.lower() for engine in Engine] if counted else []
        timing = self.timing.latency, self.timing.interval

        @functools.cache
        def expected(rows: int, again: bool, bits: int) -> int:
            run = compiled.run(rows=compiled.length(rows), again=again, bits=bits)
            return compiled.expect(run, *timing).cycles

        def each(some: Sequence[Run]) -> dict[str, int | None]:
            """Return figures of an inference."""
            read = mean(lambda run: run.loaded * config.mem_bytes, some)
            return {
                # Predictions ignore the refreshes of memory.
                "predicted_cycles": None
                if microcoded
                else mean(lambda run: expected(run.rows, run.again, run.bits), some),
                "read_bytes": read if counted else None,
                "least_bytes": None
                if model is None
                else mean(
                    lambda run: model.least_bytes(run.rows, again=run.again, bits=run.bits), some
                ),
            }

        again = [run for run in runs if run.again]
        behind = {"cycles_per_inference": mean(lambda run: run.cycles, again)} if again else {}
        return {
            "mismatches": self.mismatches,
            "tensors": self.tensors,
            "cycles": cycles,
            "cycles_per_inference": cycles / count,
            "ideal_cycles": ideal,
            "utilization": ideal * count / cycles if cycles and ideal else None,
            "cycles_per_second": cycles / self.seconds if cycles else None,
            **each(runs),
            "kept_bytes": None if model is None else model.kept_bytes,
            "again": behind | (each(again) if again else {}),
            "where": where(self.spent) if counted else {},
            "engines": {name: engine_cycles(self.spent, name) for name in engines},
            "counters": dict(self.spent),
            "program_words": len(compiled.words),
            "macs": macs,
        }


def run_inferences(
    compiled: Artefact,
    simulator: str,
    inputs: Sequence[NDArray[np.floating]],
    timing: MemoryTiming,
    progress: Progress | None = None,
    *,
    window: int = 0,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> Inferences:
    """Run a compiled model on inputs, on a new machine; return outputs and measurements.

    ``simulator`` is a simulator's name, or ``golden``. If ``window`` is not 0, a simulator records
    the runs in windows of ``window`` cycles. Other arguments are those of :func:`infer`. Raises
    :class:`InputError` if the simulator cannot run.
    """
    machine = make_machine(compiled.config, simulator, compiled.memory_bytes, timing)
    recordings: list[Recording] = []
    if window and isinstance(machine, SimulatedMachine):
        machine.record(window)
        recordings = machine.recordings
    inferences = infer(machine, compiled, inputs, timing, progress, bits)
    inferences.recordings = recordings
    return inferences


def infer(
    machine: Machine,
    compiled: Host,
    inputs: Sequence[NDArray[np.floating]],
    timing: MemoryTiming,
    progress: Progress | None = None,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> Inferences:
    """Run a compiled model on inputs, on a given machine; return outputs and measurements.

    Run i, counted from 0, reads the upper ``bits[i % len(bits)]`` bits of each weight. Outputs, and
    tensors on a trace port, are compared with the golden machine's. If the machine is the golden
    machine, its tensors are compared with the integer reference's.
    """
    model = Runs(compiled, machine)
    golden = GoldenModel(compiled)
    inferences = Inferences(compiled, timing)
    for values, width in zip(compiled.batches(inputs), itertools.cycle(bits), strict=False):
        left = len(inputs) - len(inferences.outputs)
        begin = time.perf_counter()
        data, report, again = model.run(values, width)
        inferences.seconds += time.perf_counter() - begin
        output = compiled.read_output(data)
        if isinstance(machine, Interpreter) and not isinstance(compiled, Artefact):
            pass  # without the model there is no reference for the golden machine
        elif isinstance(machine, Interpreter):
            wrong, compared = differing(compiled, golden.tensors(values, width), values, width)
            inferences.mismatches += len(wrong)
            inferences.tensors += compared
        else:
            expected, reference = golden.run(values, width)
            if compiled.config.control.trace:
                pairs = zip(report.signatures, reference.signatures, strict=True)
                inferences.mismatches += sum(signature != wanted for signature, wanted in pairs)
            inferences.mismatches += int(not np.array_equal(output, expected))
            inferences.tensors += len(report.signatures) + 1
        inferences.cycles += report.cycles
        inferences.spent.update(report.counters)
        inferences.outputs += np.split(output, compiled.batch)[:left]
        loaded = report.counters.get("loaded", 0)
        inferences.runs.append(Run(len(values), again, report.cycles, loaded, width))
        if progress is not None:
            progress(len(inferences.outputs), len(inputs))
    return inferences
