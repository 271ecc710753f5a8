"""Inferences of a compiled model on a machine, each tensor compared with the golden machine's."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arch.isa import Engine
from arch.micro.config import MicroConfig
from generators.bench.gemm_bench import Machine
from generators.compiler import CompiledModel
from generators.golden import GoldenModel
from sim.interpreter import Interpreter
from sim.report import engine_cycles, where
from tb.machine import SimulatedMachine
from tb.machines import make_machine
from tb.memory_timing import MemoryTiming
from tb.recording import Recording
from tb.whole_model import differing

Progress = Callable[[int, int], None]


class ModelMachine(Machine, Protocol):
    """A machine that a compiled model can run on."""

    def set_register(self, number: int, value: int) -> None:
        """Set a register."""


@dataclass
class Inferences:
    """Results of inferences."""

    compiled: CompiledModel
    timing: MemoryTiming
    outputs: list[NDArray[np.float64]] = field(default_factory=list)
    """The machine's outputs, [rows, columns] each, in the model's own units."""
    rows: list[int] = field(default_factory=list)
    """Rows of each run's inputs."""
    cycles: int = 0
    """Of all inferences; 0 on a machine that has no clock."""
    mismatches: int = 0
    """Tensors that differ from the golden machine's; of that machine's own, from those of
    :func:`generators.reference.integers.evaluate`."""
    tensors: int = 0
    """Tensors compared: one per vector instruction, and the output; of the golden machine's whole
    ones."""
    seconds: float = 0.0
    spent: Counter[str] = field(default_factory=Counter)
    """The counters' sums."""
    recordings: list[Recording] = field(default_factory=list)
    """Each inference in full, where that was asked for."""

    def figures(self) -> dict[str, Any]:
        """Return figures by name.

        ``utilization`` is useful products over elements times cycles, none for padding. Of one
        inference, or the mean of all where inputs have different lengths, are ``predicted_cycles``
        (``generators.program.predict``; refreshes are not foreseen), ``ideal_cycles``, ``macs``,
        ``read_bytes``, read from external memory, and ``least_bytes``, which must be. ``where``
        gives the cycles by what the array did (``sim.report.where``), ``engines`` those of each
        engine. A microcoded machine has no engines, and counts cycles only.
        """
        compiled, count, cycles = self.compiled, len(self.outputs), self.cycles
        config, rows = compiled.config, Counter(self.rows)

        def mean(of: Callable[[int], int]) -> int:
            """Return the mean of what depends on an input's rows."""
            total = sum(of(n) * times for n, times in rows.items())
            return round(total / (len(self.rows) * compiled.batch))

        ideal = mean(lambda n: -(-compiled.macs(n) // config.elements))
        microcoded = isinstance(config, MicroConfig)
        counted = bool(cycles) and not microcoded
        engines = [engine.name.lower() for engine in Engine] if counted else []
        timing = self.timing.latency, self.timing.interval
        expected = 0 if microcoded else mean(lambda n: compiled.predict(*timing, n).cycles)
        read = self.spent["loaded"] * config.mem_bytes // (len(self.rows) * compiled.batch)
        return {
            "mismatches": self.mismatches,
            "tensors": self.tensors,
            "cycles": cycles,
            "cycles_per_inference": cycles / count,
            "predicted_cycles": None if microcoded else expected,
            "ideal_cycles": ideal,
            "utilization": ideal * count / cycles if cycles else None,
            "cycles_per_second": cycles / self.seconds if cycles else None,
            "read_bytes": read if counted else None,
            "least_bytes": mean(compiled.least_bytes),
            "where": where(self.spent) if counted else {},
            "engines": {name: engine_cycles(self.spent, name) for name in engines},
            "counters": dict(self.spent),
            "program_words": len(compiled.words),
            "macs": mean(compiled.macs),
        }


def run_inferences(
    compiled: CompiledModel,
    simulator: str,
    inputs: Sequence[NDArray[np.floating]],
    timing: MemoryTiming,
    progress: Progress | None = None,
    *,
    window: int = 0,
) -> Inferences:
    """Run a compiled model, whose machine has a trace port, on inputs.

    With ``window`` each inference is recorded, with sums over so many cycles; the golden machine
    has none.

    Raises :class:`InputError` where the simulator cannot run here.
    """
    machine = make_machine(compiled.config, simulator, compiled.memory_bytes, timing)
    recordings: list[Recording] = []
    if window and isinstance(machine, SimulatedMachine):
        machine.record(window)
        recordings = machine.recordings
    found = infer(machine, compiled, inputs, timing, progress)
    found.recordings = recordings
    return found


def infer(
    machine: ModelMachine,
    compiled: CompiledModel,
    inputs: Sequence[NDArray[np.floating]],
    timing: MemoryTiming,
    progress: Progress | None = None,
) -> Inferences:
    """Run a compiled model on inputs, on a machine whose memory has some timing.

    Of a machine without a trace port, only the outputs are compared.
    """
    machine.write_memory(0, compiled.image.tobytes())
    machine.load_program(compiled.words)
    golden = GoldenModel(compiled)
    found = Inferences(compiled, timing)
    batch = compiled.batch
    for index in range(0, len(inputs), batch):
        group = inputs[index : index + batch]
        # A batch that is not full has its last input several times.
        values = np.concatenate([*group, *[group[-1]] * (batch - len(group))])
        begin = time.perf_counter()
        compiled.request(values).give(machine)
        report = machine.start()
        data = machine.read_memory(compiled.output_addr, compiled.output_count)
        found.seconds += time.perf_counter() - begin
        output = compiled.read_output(data)
        if isinstance(machine, Interpreter):
            wrong, compared = differing(compiled, golden.tensors(values), values)
            found.mismatches += len(wrong)
            found.tensors += compared
        else:
            expected, reference = golden.run(values)
            if compiled.config.trace:
                pairs = zip(report.signatures, reference.signatures, strict=True)
                found.mismatches += sum(given != wanted for given, wanted in pairs)
            found.mismatches += int(not np.array_equal(output, expected))
            found.tensors += len(report.signatures) + 1
        found.cycles += report.cycles
        found.spent.update(report.counters)
        found.outputs += np.split(output, batch)[: len(group)]
        found.rows.append(len(values))
        if progress is not None:
            progress(index + len(group), len(inputs))
    return found
