"""A text on a machine: a prompt at matrix rate, then token by token."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from generators.text_memory import Register
from generators.text_plan import WORDS_PLACE
from generators.text_program import TextProgram
from sim.interpreter import Interpreter
from sim.report import Report
from tb.machine import SimulatedMachine
from tb.machines import PROMPT, make_machine
from tb.memory_timing import MemoryTiming

Ints = NDArray[np.int64]


@dataclass
class Turn:
    """What one or several tokens took."""

    cycles: int = 0
    """Clock cycles of all programs; 0 on a machine that has no clock."""
    counters: Counter[str] = field(default_factory=Counter)
    """The counters' sums, by the names of ``arch.registers``."""
    mismatches: int = 0
    """Tensors that differ from the golden machine's."""
    tensors: int = 0
    """Tensors compared."""
    wrong: list[str] = field(default_factory=list)
    """The names of those that differ."""

    def add(self, other: "Turn") -> None:
        """Add what another took."""
        self.cycles += other.cycles
        self.counters.update(other.counters)
        self.mismatches += other.mismatches
        self.tensors += other.tensors
        self.wrong += other.wrong


class TextSession:
    """A text that grows on a machine.

    ``simulator`` is a name of ``tb.toolchain.MACHINES``. Each program also runs on the golden
    machine, and each tensor that either writes is compared by its signature.

    Raises :class:`ValueError` where the simulator is unknown or cannot run here.
    """

    def __init__(self, program: TextProgram, simulator: str, timing: MemoryTiming = PROMPT):
        self.program = program
        self.machine: Interpreter | SimulatedMachine = make_machine(
            program.config, simulator, program.memory_bytes, timing
        )
        self.golden = Interpreter(program.config)
        self.length = 0
        """Tokens so far."""
        self.turns: list[Turn] = []
        """What each call of :meth:`step` and :meth:`take` took."""
        for machine in self._machines:
            machine.write_memory(0, program.image)
            machine.load_program(program.setup)
        self.setup = self._run(0, "setup")
        """What filling the chip took."""
        for machine in self._machines:
            machine.load_program(program.words)

    @property
    def _machines(self) -> tuple[Interpreter | SimulatedMachine, ...]:
        return self.machine, self.golden

    def begin(self) -> None:
        """Begin a new text; what the chip holds of the old one is never read again."""
        self.length = 0

    def step(self, token: int) -> Turn:
        """Take one token."""
        self._set(self.program.registers(self.length, 1))
        self._set({Register.WORD: self.program.word(token)})
        turn = self._run(self.program.entries["step"].pc, "step")
        self.length += 1
        self.turns.append(turn)
        return turn

    def take(self, tokens: Sequence[int]) -> Turn:
        """Take tokens, in chunks as long as the cache still has room for them."""
        turn, rest = Turn(), list(tokens)
        while rest:
            rows = min(self.program.rows, len(rest), self.program.cache.capacity - self.length)
            if rows < 2:
                turn.add(self.step(rest.pop(0)))
                self.turns.pop()
                continue
            chunk, rest = rest[:rows], rest[rows:]
            turn.add(self._chunk(chunk))
        self.turns.append(turn)
        return turn

    def _chunk(self, tokens: Sequence[int]) -> Turn:
        program = self.program
        numbers = [*tokens, *[0] * (program.rows - len(tokens))]
        self._set({row + 1: program.word(token) for row, token in enumerate(numbers)})
        self._set({WORDS_PLACE: self.length * program.strides["places"]})
        turn = self._run(program.entries["words"].pc, "words")
        self._set(program.registers(self.length, len(tokens)))
        turn.add(self._run(program.entries["chunk"].pc, "chunk"))
        self.length += len(tokens)
        return turn

    def choose(self) -> int:
        """Return the token of the largest logit behind the last token, the first of equals."""
        if not self.program.config.argmax:
            return int(np.argmax(self.logits()))
        found, wanted = (machine.read_register("ARGMAX") for machine in self._machines)
        self._compare("argmax", found == wanted)
        return found

    def logits(self) -> Ints:
        """Return the logits behind the last token, [vocabulary], stored and read."""
        vocabulary = self.program.decoder.description.vocabulary
        turn = self._run(self.program.entries["logits"].pc, "logits")
        found = []
        for machine in self._machines:
            data = machine.read_memory(self.program.logits.addr, 2 * vocabulary)
            found.append(np.frombuffer(data, "<i2").astype(np.int64))
        if self.turns:
            self.turns[-1].counters["stored"] += turn.counters["stored"]
        self._compare("logits", np.array_equal(*found))
        return found[0]

    def _compare(self, name: str, same: bool) -> None:
        if self.turns:
            self.turns[-1].add(Turn(mismatches=int(not same), tensors=1, wrong=[name] * (not same)))

    def _set(self, registers: dict[int, int]) -> None:
        for machine in self._machines:
            for number, value in registers.items():
                machine.set_register(int(number), value)

    def _run(self, pc: int, name: str) -> Turn:
        report, wanted = (machine.start(pc) for machine in self._machines)
        written = self.program.written(name)
        pairs = list(zip(written, report.signatures, wanted.signatures, strict=True))
        wrong = [what.name for what, found, expected in pairs if found != expected]
        return Turn(report.cycles, Counter(_counters(report)), len(wrong), len(pairs), wrong)


def _counters(report: Report) -> dict[str, int]:
    """Return a report's counters, with those that the golden machine does not have as 0."""
    return {"loaded": 0, "stored": 0, **report.counters}
