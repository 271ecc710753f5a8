"""Repeated runs of an encoder on one machine, with weights kept on the chip if possible."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.sim.report import Report


class Runs:
    """Runs a compiled encoder repeatedly on a machine that runs no other program.

    If weights can stay on the chip, only the first run and a run after a reset, an abort or an
    error load them.
    """

    def __init__(self, compiled: Host, machine: Machine):
        self.compiled, self.machine = compiled, machine
        self._kept = False
        machine.write_memory(0, compiled.image.tobytes())
        machine.load_program(compiled.words)

    def run(
        self, values: NDArray[np.floating], bits: int = OPERAND_BITS
    ) -> tuple[bytes, Report, bool]:
        """Run the encoder on one input; return (output bytes, report of the run, weights reused).

        The third result is true if weights stayed on the chip, and the run did not load them.
        ``values`` is the input [rows, features]. ``bits`` is the number of upper bits read of each
        weight. Raises :class:`RunError` if the run ends with an error.
        """
        compiled, machine = self.compiled, self.machine
        # Called after failed runs too, because it reports a failure only once.
        again = compiled.keeps and machine.all_runs_ended_well() and self._kept
        self._kept = False
        compiled.request(values).give(machine)
        run = compiled.run(rows=compiled.length(len(values)), again=again, bits=bits)
        report = machine.start(compiled.entries[run.entry].pc)
        self._kept = compiled.keeps
        return machine.read_memory(compiled.output_addr, compiled.output_count), report, again
