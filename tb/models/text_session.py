"""Sessions in which a machine runs a language model on the tokens of one text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.lower.artefact import Artefact
from celosia.generators.program.draft import Written
from celosia.generators.program.executable import Run
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import Report
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT, make_machine

Ints = NDArray[np.int64]


@dataclass
class Turn:
    """Measurements of one or more runs of a language model's programs, summed over the runs.

    The measurements are the clock cycles, the machine's counters, the number of tensors compared
    with the golden machine's, and the number of these tensors that differ.
    """

    cycles: int = 0
    """Number of clock cycles of all runs; 0 on a machine that has no clock."""
    counters: Counter[str] = field(default_factory=Counter)
    """Sum of each counter; ``celosia.arch.registers`` has the counters' names."""
    mismatches: int = 0
    """Number of tensors that differ from the golden machine's."""
    tensors: int = 0
    """Number of tensors that were compared."""
    wrong: list[str] = field(default_factory=list)
    """Names of the tensors that differ."""

    def add(self, other: "Turn") -> None:
        """Add the measurements of ``other`` to those of this object."""
        self.cycles += other.cycles
        self.counters.update(other.counters)
        self.mismatches += other.mismatches
        self.tensors += other.tensors
        self.wrong += other.wrong


class TextSession:
    """A text that a language model processes token by token on a machine, or on a named simulator.

    Chosen tokens, and tensors on a trace port, are compared with the golden machine's. Chosen
    tokens are also compared with the integer reference's. Raises :class:`InputError` if the
    simulator cannot run.
    """

    def __init__(self, program: Host, machine: str | Machine, timing: MemoryTiming = PROMPT):
        self.program, self.timing = program, timing
        self.machine: Machine = (
            make_machine(program.config, machine, program.memory_bytes, timing)
            if isinstance(machine, str)
            else machine
        )
        self.golden = (
            self.machine if isinstance(self.machine, Interpreter) else Interpreter(program.config)
        )
        self._decoded = self._empty()
        self._expected: Ints = np.zeros(0, np.int64)
        self.length = 0
        """Tokens so far."""
        self.source = 0
        """Tokens of the source that they answer."""
        self.bits = OPERAND_BITS
        """Bits of nested weights that the next tokens are computed with."""
        self.turns: list[Turn] = []
        """Cycles and counters of each call of :meth:`step` and :meth:`take`."""
        self.setup = Turn()
        """Cycles and counters of filling the chip."""
        for fill in program.setup:
            for hosted in self._machines:
                hosted.write_memory(0, fill.image)
                hosted.load_program(fill.words)
            self.setup.add(self._run(0, fill.written))
        for hosted in self._machines:
            hosted.load_program(program.words)

    @property
    def _machines(self) -> tuple[Machine, ...]:
        return (self.golden,) if self._alone else (self.machine, self.golden)

    @property
    def _alone(self) -> bool:
        """True if the machine is the golden one."""
        return self.machine is self.golden

    @property
    def _reference(self) -> Artefact | None:
        """The programs with their decoder, which computes the right choices of the golden machine.

        None if another machine runs beside the golden one, or the decoder is missing.
        """
        program = self.program
        return program if self._alone and isinstance(program, Artefact) else None

    def _empty(self) -> KvCache:
        return KvCache(slots=self.program.cache.capacity, sinks=self.program.cache.sinks)

    def begin(self) -> None:
        """Begin a new text at position 0; the keys and values in the cache are no longer used."""
        self.length = 0
        self._decoded = self._empty()

    def encode(self, tokens: Sequence[int]) -> Turn:
        """Run an encoder-decoder's encoder on a source text, and begin a new, empty answer.

        ``tokens`` are the source's tokens. The program must have been compiled for this number of
        tokens. The result, a :class:`Turn`, has the sums of the cycles and counters of the
        encoder's runs.
        """
        self.begin()
        program, self.source, turn = self.program, len(tokens), Turn()
        for run in program.source_runs(tokens):
            turn.add(self._start(run))
        reference = self._reference
        if reference is not None and reference.graph.source is not None:
            evaluate(reference.graph.source, tokens, self._decoded)
        return turn

    def step(self, token: int) -> Turn:
        """Run the decoder on the text's next token; return the run's cycles and counters."""
        run = self.program.run(self.length, [token], source=self.source, bits=self.bits)
        turn = self._start(run)
        self._decode([token])
        self.length += 1
        self.turns.append(turn)
        return turn

    def take(self, tokens: Sequence[int]) -> Turn:
        """Run the decoder on the text's next ``tokens``; return measurements summed over the runs.

        While the KV cache has room, a run processes up to ``program.rows`` tokens at once. When the
        cache is full, each run processes one token.
        """
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
        turn = Turn()
        for run in self.program.chunk_runs(self.length, tokens, bits=self.bits):
            turn.add(self._start(run))
        self._decode(tokens)
        self.length += len(tokens)
        return turn

    def _decode(self, tokens: Sequence[int]) -> None:
        if self._reference is not None:
            decoder = self._reference.graph_at(self.bits)
            self._expected = evaluate(decoder, tokens, self._decoded)["logits"][-1]

    def choose(self) -> int:
        """Return the most likely next token: the first token with the largest logit."""
        if not self.program.config.vector.argmax:
            return int(np.argmax(self.logits()))
        chosen = [
            tuple(machine.read_register(name) for name in ("ARGMAX", "ARGMAX_VALUE"))
            for machine in self._machines
        ]
        if self._reference is not None:
            value = int(self._expected.max()) % (1 << 32)  # as the register's
            chosen.append((int(np.argmax(self._expected)), value))
        if len(chosen) > 1:
            self._compare("argmax", len(set(chosen)) == 1)
        return chosen[0][0]

    def logits(self) -> Ints:
        """Return the logits of the next token, [vocabulary], read from external memory."""
        vocabulary = self.program.vocabulary
        turn = self._start(Run("logits", {}))
        logits_by_machine = []
        for machine in self._machines:
            data = machine.read_memory(self.program.output_addr, 2 * vocabulary)
            logits_by_machine.append(np.frombuffer(data, "<i2").astype(np.int64))
        if self._reference is not None:
            logits_by_machine.append(self._expected)
        if self.turns:
            self.turns[-1].counters["stored"] += turn.counters["stored"]
        if len(logits_by_machine) > 1:
            self._compare("logits", np.array_equal(*logits_by_machine))
        return logits_by_machine[0]

    def _compare(self, name: str, same: bool) -> None:
        if self.turns:
            self.turns[-1].add(Turn(mismatches=int(not same), tensors=1, wrong=[name] * (not same)))

    def _start(self, run: Run) -> Turn:
        for machine in self._machines:
            for number, value in run.registers.items():
                machine.set_register(int(number), value)
        entry = self.program.entries[run.entry]
        return self._run(entry.pc, entry.written)

    def _run(self, pc: int, written: Sequence[Written]) -> Turn:
        report, *others = (machine.start(pc) for machine in self._machines)
        turn = Turn(report.cycles, Counter(_counters(report)))
        if self.program.config.control.trace and others:
            pairs = list(zip(written, report.signatures, others[0].signatures, strict=True))
            turn.wrong = [
                tensor.name for tensor, signature, expected in pairs if signature != expected
            ]
            turn.mismatches, turn.tensors = len(turn.wrong), len(pairs)
        return turn


def run_tokens(
    program: Host,
    machine: Machine,
    texts: Sequence[NDArray[np.integer]],
    timing: MemoryTiming,
    bits: int,
) -> tuple[list[NDArray[np.float64]], Turn]:
    """Run a language model on several texts; return the logits after each text, and measurements.

    A text is an array of token numbers [n], an encoder-decoder's source text. The logits
    [vocabulary] are those of the next token. The measurements are sums over all runs, including
    those that load weights onto the chip.
    """
    session, outputs = TextSession(program, machine, timing), []
    session.bits, total = bits, session.setup
    for tokens in texts:
        session.begin()
        if program.lookups:
            total.add(session.encode(tokens))
        session.take([program.start] if program.lookups else tokens)
        outputs.append(session.logits() * program.output.scale)
        total.add(session.turns[-1])
    return outputs, total


def _counters(report: Report) -> dict[str, int]:
    """Return a report's counters, with those that the golden machine does not have as 0."""
    return {"loaded": 0, "stored": 0, **report.counters}
