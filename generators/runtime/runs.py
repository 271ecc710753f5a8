"""Runs of a compiled model on one machine: weights stay there from run to run, where they can."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.runtime.encoder_host import EncoderHost
from celosia.generators.runtime.interface import Machine
from celosia.sim.report import Report


class Runs:
    """A compiled model on a machine that nothing else runs on meanwhile.

    A run loads weights and parameters if the one before has not left them on the chip: the first
    one, those of a model whose weights do not stay, and one behind a reset, an abort or an error.
    """

    def __init__(self, compiled: EncoderHost, machine: Machine):
        self.compiled, self.machine = compiled, machine
        self._kept = False
        machine.write_memory(0, compiled.image.tobytes())
        machine.load_program(compiled.words)

    def run(
        self, values: NDArray[np.floating], bits: int = OPERAND_BITS
    ) -> tuple[bytes, Report, bool]:
        """Return the output's bytes of one input, the report, and whether weights were there.

        ``values`` are what :meth:`celosia.generators.runtime.encoder_host.EncoderHost.request`
        takes. Nested weights are read at so many ``bits``.

        Raises :class:`RunError` where the run stops.
        """
        compiled, machine = self.compiled, self.machine
        # It is asked behind runs that were stopped as well, which it tells once.
        again = compiled.keeps and machine.unbroken() and self._kept
        self._kept = False
        compiled.request(values).give(machine)
        report = machine.start(compiled.entries[compiled.entry(again=again, bits=bits)].pc)
        self._kept = compiled.keeps
        return machine.read_memory(compiled.output_addr, compiled.output_count), report, again
