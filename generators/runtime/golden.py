"""Runs compiled encoders on the golden machine, the reference interpreter of programs."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import Engine
from celosia.generators.graph.tensors import Ints
from celosia.generators.program.draft import Written
from celosia.generators.program.executable import ENCODE
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.runs import Runs
from celosia.sim.flow import Step
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import Report


class GoldenModel:
    """Runs a compiled encoder on inputs, on the golden machine (an interpreter of programs)."""

    def __init__(self, compiled: Host):
        self.compiled = compiled
        self.machine = Interpreter(compiled.config)
        self._runs = Runs(compiled, self.machine)

    def run(
        self, values: NDArray[np.floating], bits: int = OPERAND_BITS
    ) -> tuple[NDArray[np.float64], Report]:
        """Run the encoder on one input; return its real output [rows, columns] and a report.

        ``values`` is the input, in the form that
        :meth:`celosia.generators.runtime.host.Host.request` takes. ``bits`` is the number of upper
        bits read of each weight: 8, or also 4 or 2 for weights that are stored as bit planes.
        """
        data, report, _ = self._runs.run(values, bits)
        return self.compiled.read_output(data), report

    def tensors(self, values: NDArray[np.floating], bits: int = OPERAND_BITS) -> dict[str, Ints]:
        """Run the encoder on one input; return the integers of all tensors that it writes, by name.

        Scores and probabilities are [heads, sequence, sequence], other tensors [rows, columns]. If
        the input has fewer rows than the model's longest input, the rows after it are 0. ``values``
        and ``bits`` are the arguments of :meth:`run`.
        """
        written_order = self.compiled.entries[ENCODE].written
        parts: list[int] = []
        pieces: list[tuple[Written, Ints]] = []

        def note(step: Step, machine: Interpreter) -> None:
            if step.engine != Engine.VECTOR:
                return
            first = 0
            for written in written_order[len(parts)].parts:
                wide = "wide_out" in step.flags
                integers = np.zeros((written.rows, written.columns), np.int64)
                for row in range(min(written.rows, step.operands.get("m", 0))):
                    addr = step["o_addr"] + (first + row) * step["o_stride"]
                    data = machine.sp[addr : addr + step["n"] * (2 if wide else 1)]
                    integers[row, : step["n"]] = data.view("<i2" if wide else np.int8)
                first += written.rows
                pieces.append((written, integers))
            parts.append(first)

        previous: Callable[[Step, Interpreter], None] | None = self.machine.on_step
        self.machine.on_step = note
        try:
            self.run(values, bits)
        finally:
            self.machine.on_step = previous
        return _join([(written, integers) for written, integers in pieces if written.columns])


def _join(pieces: Sequence[tuple[Written, Ints]]) -> dict[str, Ints]:
    """Return whole tensors from the parts written by vector instructions."""
    ends: dict[str, NDArray[np.int64]] = {}
    for written, _ in pieces:
        end = (written.head + 1, written.row + written.rows, max(written.places) + 1)
        ends[written.name] = np.maximum(ends.get(written.name, np.zeros(3, np.int64)), end)
    tensors = {name: np.zeros(end, np.int64) for name, end in ends.items()}
    for written, values in pieces:
        rows = slice(written.row, written.row + written.rows)
        tensors[written.name][written.head, rows, written.places] = values.T
    heads = ("scores", "probabilities")
    return {
        name: tensor if name.rpartition(".")[2] in heads else tensor[0]
        for name, tensor in tensors.items()
    }
