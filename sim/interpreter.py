"""The golden machine: a reference interpreter of machine programs on integer arrays."""

from collections.abc import Callable, Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.instruction import wrap as wrap_immediate
from celosia.arch.isa import REGISTERS, Engine, Opcode
from celosia.sim.admission import check_followed, check_step
from celosia.sim.flow import Step, run
from celosia.sim.matrix_steps import MatrixSteps
from celosia.sim.regions import regions
from celosia.sim.report import Report
from celosia.sim.vector_steps import VectorSteps


class Interpreter(MatrixSteps, VectorSteps):
    """The golden machine of a configuration: runs one instruction after another, without a clock.

    The circuit must write the same values to its memories (:class:`celosia.sim.memories.Memories`).
    """

    def __init__(self, config: Config):
        super().__init__(config)
        self.words: list[int] = []
        self.registers = [0] * REGISTERS
        self.on_step: Callable[[Step, Interpreter], None] | None = None

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory, from byte address ``addr`` on."""
        self.dram[addr : addr + len(data)] = np.frombuffer(data, np.uint8)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of external memory, from byte address ``addr`` on."""
        return self.dram[addr : addr + count].tobytes()

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words into program memory.

        Raises :class:`ProgramError` if the words do not fit program memory.
        """
        if len(words) > self.config.control.program_depth:
            raise ProgramError(
                f"Program has {len(words)} words, but program_depth is "
                f"{self.config.control.program_depth}"
            )
        self.words = list(words)

    def set_register(self, number: int, value: int) -> None:
        """Set sequencer register ``number`` (0 to 15); it keeps its value from run to run."""
        self.registers[number] = wrap_immediate(value)

    def read_register(self, name: str) -> int:
        """Return the value of host register ARGMAX or ARGMAX_VALUE, an unsigned 32-bit integer."""
        return {"ARGMAX": self.argmax, "ARGMAX_VALUE": self.argmax_value % (1 << 32)}[name]

    def all_runs_ended_well(self) -> bool:
        """Return whether all runs since the last call of this method ended without error or reset.

        The result is always true: no event resets the golden machine, and a run that fails raises
        an exception.
        """
        return True

    def start(self, pc: int = 0) -> Report:
        """Run the program from word address ``pc`` to HALT, and return a :class:`Report`.

        Raises :class:`ProgramError` if an instruction cannot run on the configuration, or reads
        accumulators that no product has filled.
        """
        self._signatures = []
        self._macs = 0
        before: Step | None = None
        for step in run(self.words, pc, self.registers):
            check_step(step, self.config)
            self._sums.follow(step)
            if step.engine == Engine.VECTOR:
                check_followed(before, step, self.config)
                before = step
            _RUN[step.opcode](self, step)
            if self.on_step is not None:
                self.on_step(step, self)
        check_followed(before, None, self.config)
        return Report(counters={"macs": self._macs}, signatures=self._signatures)

    def _move(self, step: Step) -> None:
        reads, writes = regions(step, self.config)
        if step.opcode == Opcode.LOAD:
            self.sp[writes[0].cells()] = self.dram[reads[0].cells()]
        else:
            self.dram[writes[0].cells()] = self.sp[reads[0].cells()]


_RUN: dict[Opcode, Callable[[Interpreter, Step], None]] = {
    Opcode.LOAD: Interpreter._move,
    Opcode.STORE: Interpreter._move,
    Opcode.MATMUL: Interpreter._matmul,
    Opcode.SPARSE: Interpreter._sparse,
    Opcode.PRELOAD: Interpreter._preload,
    Opcode.DRAIN: Interpreter._drain,
    Opcode.MAP: Interpreter._map,
    Opcode.SOFTMAX: Interpreter._softmax,
    Opcode.NORM: Interpreter._norm,
    Opcode.PARAMS: Interpreter._load_params,
    Opcode.TABLE: Interpreter._load_table,
}
