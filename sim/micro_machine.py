"""Golden model of the microcoded machine, which runs programs by simulating its microcode.

It has the methods of ``celosia.sim.interpreter.Interpreter``, a golden model that executes
instructions without microcode. A caller can therefore run a program on both models, and compare
the results.
"""

from collections.abc import Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.instruction import wrap
from celosia.arch.micro.isa import Signal
from celosia.arch.micro.memory import memory_map
from celosia.arch.micro.microcode import assemble
from celosia.sim.micro_core import MicroCore
from celosia.sim.report import Report, signature


class MicroMachine:
    """Golden model of a microcoded machine: a core that runs the configuration's microcode."""

    def __init__(self, config: Config):
        self.config = config
        microcode = assemble(config)
        self.labels = microcode.labels
        self.core = MicroCore(config, microcode.words())
        self.core.on_write = self._write
        self.core.on_signal = self._signal
        self._map = memory_map(config)
        self._vector = self._failed = False
        self._written: list[tuple[int, int]] = []
        self._signatures: list[int] = []
        self.core.run(self.labels["idle"])

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory, from byte address ``addr`` on."""
        self.core.dram[addr : addr + len(data)] = np.frombuffer(data, np.uint8)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of external memory, from byte address ``addr`` on."""
        return self.core.dram[addr : addr + count].tobytes()

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words into the program region of the data memory."""
        self.core.data[self._map.program : self._map.program + len(words)] = words

    def set_register(self, number: int, value: int) -> None:
        """Set the program's register ``number`` (0 to 15) to ``value``.

        The register keeps its value from one run to the next.
        """
        self.core.data[self._map.registers + number] = wrap(value) % (1 << 32)

    def start(self, pc: int = 0) -> Report:
        """Run the program from word address ``pc`` to HALT, and return a :class:`Report`.

        Raises :class:`RunError` if the microcode signals a failure, or if the run takes more than
        10**9 micro-instructions.
        """
        self._signatures, self._written, self._failed = [], [], False
        before = self.core.cycles
        self.core.start(pc)
        self.core.step()
        self.core.run(self.labels["idle"], limit=1_000_000_000)
        if self._failed:
            raise RunError("The program has an unknown instruction, or loops too deep")
        return Report(cycles=self.core.cycles - before, signatures=self._signatures)

    def _write(self, address: int, value: int) -> None:
        if self._vector:
            self._written.append((address, value))

    def _signal(self, which: Signal) -> None:
        if which == Signal.FAIL:
            self._failed = True
        self._vector = which == Signal.VECTOR
        if which == Signal.RETIRE:
            written = np.array(self._written, np.int64).reshape(-1, 2)
            self._signatures.append(signature(written[:, 0], written[:, 1].astype(np.uint8)))
            self._written = []
