"""Prediction of a program's cycles without simulation.

The model follows each instruction through the sequencer, the queue of its engine, and the engine.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction, unpack_one
from celosia.arch.isa import DEFINITIONS, REGISTERS, Engine, Opcode
from celosia.arch.latency import burst_words, has_line_register, queue_latency
from celosia.generators.program.spans import after_accesses
from celosia.generators.program.timing import MatrixTiming, VectorTiming
from celosia.sim.flow import Step, run

_START = 4
"""Cycles from the start of a run to the first word in a queue."""
_STOP = 3
"""Cycles from the last command's end to the halt."""
_ASK = 5
"""Cycles from an accepted LOAD to its first request."""
_ROOM = 2
"""Cycles from the earliest acceptance of a LOAD to its earliest first request."""
_KEEP = 3
"""Cycles from a LOAD's last word to its end."""
_FETCH = 6
"""Cycles from an accepted STORE to its first word."""
_WRITTEN = 2
"""Cycles from the end of a ``followed`` command to the earliest departure of the next one."""
_BURSTS = 8
"""Bursts that external memory accepts before the first of them is done."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted cycles of a run, in total and for each engine and instruction."""

    cycles: int
    words_read: int
    """Words read from external memory."""
    busy: Mapping[Engine, int]
    """Cycles in which each engine works."""
    timeline: Sequence[tuple[int, int]] = field(repr=False)
    """First cycle of each instruction, and the cycle after its last, in program order."""


def predict(
    words: Sequence[int],
    config: Config,
    *,
    latency: int = 8,
    interval: int = 1,
    registers: Mapping[int, int] | None = None,
    start: int = 0,
) -> Prediction:
    """Return the predicted cycles of a run, and the number of words read from external memory.

    External memory returns the first word ``latency`` cycles after a request, then one every
    ``interval`` cycles. The host writes the values ``registers``, by register number, before the
    run. ``start`` is the program's first word address.
    """
    values = [0] * REGISTERS
    for number, value in (registers or {}).items():
        values[number] = value
    machine = _Machine(words, start, config, latency, interval)
    for step in run(words, start, values):
        machine.step(step)
    return machine.finish()


@dataclass
class _Command:
    """An instruction in its engine's queue."""

    step: Step
    visible: int
    """First cycle in which it can be at the queue's head."""
    place: int
    """Its index in program order."""


class _Machine:
    def __init__(
        self, words: Sequence[int], start: int, config: Config, latency: int, interval: int
    ):
        self._words, self._config = list(words), config
        self._latency, self._interval = latency, interval
        self._vector, self._matrix = VectorTiming(config), MatrixTiming(config)
        self._now = _START
        self._at = start
        """Word after the last instruction."""
        self._decoded: dict[int, Instruction] = {}
        self._gaps: dict[tuple[int, int], int] = {}
        self._queues: dict[Engine, deque[_Command]] = {engine: deque() for engine in Engine}
        self._leaves: dict[Engine, deque[int]] = {
            engine: deque([0] * config.control.queue_depth) for engine in Engine
        }
        """Cycles in which the last commands left their queue, the oldest that counts first."""
        self._tokens: dict[tuple[Engine, Engine], deque[int]] = {
            (source, sink): deque() for source in Engine for sink in Engine
        }
        self._busy = dict.fromkeys(Engine, 0)
        self._free = dict.fromkeys(Engine, 0)
        """Cycle from which each engine takes a command again."""
        self._taken = dict.fromkeys(Engine, -1)
        """Cycle in which each engine took its last command."""
        self._timeline: list[tuple[int, int]] = []
        self._behind = 0
        """Cycle in which a command is written that the next one follows; 0 for none."""
        self._last = 0
        self._data = 0
        """Cycle in which the last requested word arrives."""
        self._asked = 0
        """Cycle in which the memory took the last burst's request."""
        self._bursts: deque[int] = deque([0] * _BURSTS, _BURSTS)
        """Cycles in which the last words of the last bursts arrive."""
        self._read = 0
        self._writes: deque[tuple[int, int, int, float]] = deque(maxlen=16)
        """Spans in which the last vector commands write a bank, with the share of other cycles."""

    def step(self, step: Step) -> None:
        """Pass an instruction to its engine's queue once there is room for it."""
        engine = step.engine
        whole = self._instruction(step.address)
        if step.opcode == whole.opcode or self._at != step.address + whole.definition.words:
            self._now += self._control(step.address)
        self._at = step.address + whole.definition.words
        while not self._leaves[engine]:
            self._advance()
        # The first word waits until the queue has room for another command; with ``registered`` the
        # third one, because two wait before the queue.
        late = int(self._config.control.registered)
        begin = max(self._now, self._leaves[engine].popleft() - 2 * late)
        self._now = begin + DEFINITIONS[step.opcode].words
        visible = self._now + queue_latency(self._config.control.queue_depth) - 1 + late
        self._queues[engine].append(_Command(step, visible, len(self._timeline)))
        self._timeline.append((0, 0))

    def _advance(self) -> None:
        """Run the head of a queue whose tokens are available.

        The vector engine is last, as it waits for banks that others read. But if it writes the bank
        of a load, the load waits for it.
        """
        order = [Engine.MATRIX, Engine.LOAD, Engine.STORE, Engine.VECTOR]
        if self._written_first():
            order.insert(1, order.pop())
        for engine in order:
            queue = self._queues[engine]
            if queue and all(self._tokens[source, engine] for source in queue[0].step.pop):
                self._run(engine, queue.popleft())
                return
        raise ProgramError("The program waits for a token that no engine gives")

    def _written_first(self) -> bool:
        """Return whether waiting vector commands may write the bank of the next load before it."""
        if not self._queues[Engine.LOAD] or not self._queues[Engine.VECTOR]:
            return False
        load, vector = self._queues[Engine.LOAD][0], self._queues[Engine.VECTOR]
        bank = load.step["sp_addr"] // self._config.bank_bytes
        if not any(
            other.step[name] // self._config.bank_bytes == bank
            for other in vector
            for name in ("o_addr", "s_addr")
            if name in other.step.operands
        ):
            return False
        asked = max(load.visible, self._free[Engine.LOAD]) + _ASK
        end = self._arrived(load.step, max(self._data, asked + self._latency))
        return max(vector[0].visible, self._taken[Engine.VECTOR] + 1) < end

    def _arrived(self, step: Step, begin: int) -> int:
        """Return the cycle after a LOAD's last write, if its words arrive from ``begin`` on.

        Writes of the vector engine to the same bank have priority.
        """
        bank, interval = step["sp_addr"] // self._config.bank_bytes, self._interval
        writes = (
            (first, end, min(share * interval, 1.0))
            for first, end, other, share in self._writes
            if other == bank
        )
        return after_accesses(begin, self._words_of(step) * interval, writes)

    def _words_of(self, step: Step) -> int:
        """Return the number of external words that a LOAD or a STORE moves."""
        return step["m"] * -(-step["row_bytes"] // self._config.mem_bytes)

    def _run(self, engine: Engine, command: _Command) -> None:
        step, late = command.step, int(self._config.control.registered)
        ready = max(command.visible + late, self._free[engine], self._taken[engine] + 1 + late)
        for source in step.pop:
            # Tokens of the matrix engine are usable at once.
            later = late and source != Engine.MATRIX
            ready = max(ready, self._tokens[source, engine].popleft() + later)
        begin, accepted, done = self._time(step, ready)
        self._busy[engine] += done - begin
        self._timeline[command.place] = begin, done + 1
        # With ``registered`` a command waits for its engine in a separate register.
        self._leaves[engine].append(ready - 1 if late else accepted)
        self._taken[engine] = accepted
        for sink in step.push:
            self._tokens[engine, sink].append(done + 1)
        self._last = max(self._last, done)

    def _time(self, step: Step, ready: int) -> tuple[int, int, int]:
        """Return the cycles in which a command begins, leaves its queue, and is complete."""
        if step.engine == Engine.MATRIX:
            return self._matrix.add(step, ready)
        if step.engine == Engine.VECTOR:
            matrix, behind = self._matrix, 0
            done = self._vector.done(step, ready, matrix.reads, matrix.sums, matrix.tiles)
            leaves = done
            if self._behind:
                done = leaves = max(done, self._behind + self._vector.beats(step))
            if "followed" in step.flags:
                leaves = self._vector.next_acceptance(step, done)
                # Only one command at a time overlaps another.
                if self._behind:
                    leaves = max(leaves, self._behind + _WRITTEN - 1)
                behind = done
            self._behind = behind
            self._writes += self._vector.writes(step, ready, done)
            return ready, leaves, done
        words = self._words_of(step)
        if step.engine == Engine.STORE:
            end = (
                ready
                + _FETCH
                + has_line_register(self._config.access, self._config.stages)
                + words * self._interval
            )
            self._free[Engine.STORE] = end
            return ready, ready, end + self._latency
        self._read += words
        asked = ready + _ASK
        begin = max(self._data, asked + self._latency)
        late = self._arrived(step, begin) - begin - words * self._interval
        passed = 0
        for row in range(step["m"]):
            passed = self._asked
            for size in self._burst_sizes(step, row):
                # Requests precede data as far as the memory accepts them.
                asked = max(asked, self._asked + 1, self._bursts[0])
                self._data = max(self._data, asked + self._latency) + size * self._interval
                self._bursts.append(self._data)
                self._asked = asked
        self._data += late
        self._bursts[-1] = self._data
        # The last row makes room for the next command while it waits for the memory.
        self._free[Engine.LOAD] = max(ready + step["m"] + 1, passed - _ROOM)
        return begin, ready, self._data + _KEEP

    def _burst_sizes(self, step: Step, row: int) -> Iterator[int]:
        """Yield the words of each burst of a row of a LOAD."""
        longest, width = burst_words(self._config.memory), self._config.mem_bytes
        addr = (step["dram_addr"] + row * step["dram_stride"]) // width
        end = addr + -(-step["row_bytes"] // width)
        while addr < end:
            size = min(longest - addr % longest, end - addr)
            yield size
            addr += size

    def _instruction(self, address: int) -> Instruction:
        if address not in self._decoded:
            self._decoded[address] = unpack_one(self._words, address)
        return self._decoded[address]

    def _control(self, address: int) -> int:
        """Return the cycles of the sequencer's own instructions before an engine's instruction."""
        key = (self._at, address)
        if key not in self._gaps:
            here, cycles = self._at, 0
            while here != address:
                instruction = self._instruction(here)
                cycles += instruction.definition.words
                here += instruction.definition.words
                if instruction.opcode == Opcode.ENDLOOP and address < here:
                    # Returning costs a cycle; a body begins with an instruction of an engine.
                    here, cycles = address, cycles + 1
            self._gaps[key] = cycles
        return self._gaps[key]

    def finish(self) -> Prediction:
        """Run the remaining commands, and return the prediction."""
        while any(self._queues.values()):
            self._advance()
        return Prediction(
            cycles=max(self._last, self._now) + _STOP,
            words_read=self._read,
            busy=dict(self._busy),
            timeline=self._timeline,
        )
