"""Trials of recovery: a run is disturbed in a random cycle, and the next run is checked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.registers import (
    CONTROL_ABORT,
    CONTROL_FORGET,
    CONTROL_START,
    STATUS_BUSY,
    STATUS_ERROR,
    Cause,
    cause_of,
)
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import Report
from celosia.tb.machine.simulated import MemoryBehaviour, VerilatorMachine
from celosia.tb.verify.random_programs import RandomProgram, fitting_program

STEPS = 6
"""Random instructions of a program, besides those that make it independent of earlier runs."""

_ADDR_WIDTH = 17
MEMORY_BYTES = 1 << _ADDR_WIDTH

WATCHDOG = 4000
"""The field ``watchdog`` (cycles): eight waiting bursts of up to 512 words each end before it."""


def disturbed(config: Config) -> Config:
    """Return ``config`` changed for trials of recovery from disturbances.

    The returned configuration has trace ports, a short watchdog, and a small external memory.
    """
    return config.replace(trace=True, watchdog=WATCHDOG, mem_addr_width=_ADDR_WIDTH)


_ILLEGAL = 31  # no instruction

KINDS = (
    "reset",
    "cold reset",
    "abort",
    "abort and start",
    "forget",
    "refusal",
    "silence",
    "error",
    "abort in silence",
)
"""Disturbances of a run.

- ``reset``, ``cold reset``: for 1 to 4 cycles, the second one with external memory.
- ``abort``, ``abort and start``: by the host, in one write to CONTROL.
- ``forget``: the host reports by FORGET that external memory has lost all requests.
- ``refusal``: an illegal instruction word in the program.
- ``silence``: external memory does not answer until shortly before or after the next start.
- ``error``: external memory reports errors.
- ``abort in silence``: an abort while external memory does not answer for some time.
"""


@dataclass(frozen=True)
class Trial:
    """The outcome of a trial: a run with a disturbance, and the next run without one."""

    kind: str
    """The disturbance, a name in ``KINDS``."""
    cycle: int
    """Cycle of the first run in which the disturbance came."""
    cause: Cause
    """Error cause in register STATUS at the end of the first run; NONE without an error."""
    mismatch: str
    """Description of wrong behaviour in either run, or empty."""


@dataclass(frozen=True)
class _Wanted:
    program: RandomProgram
    report: Report
    result: bytes
    cycles: int


class Campaign:
    """Tests of a machine's recovery: a trial disturbs one random run and checks the next run.

    ``machine`` is the tested machine. If ``machine`` is None, a machine is simulated, with the
    configuration ``disturbed(config)`` and a memory latency of ``latency`` cycles. ``programs`` is
    the number of random programs.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        programs: int = 4,
        latency: int = 23,
        machine: VerilatorMachine | None = None,
    ):
        if machine is None:
            machine = VerilatorMachine(
                disturbed(config),
                memory_bytes=MEMORY_BYTES,
                latency=latency,
                contents=seed + 1,
                limit=1_000_000,
            )
        config = machine.config
        self._rng = np.random.default_rng(seed)
        self.machine = machine
        self.cold: list[str] = []
        """For each program's first run, after a reset, its differences from the golden machine's
        results."""
        self._wanted = [self._first(config, self._rng) for _ in range(programs)]
        # From a reset until a run may begin, and from a silence until STATUS shows it.
        depth = max(config.accumulators.depth, 32)
        words = depth * config.array.cols if config.micro is not None else depth
        self._bound = 10 * words + 4 * config.control.watchdog + 10_000

    def _first(self, config: Config, rng: np.random.Generator) -> _Wanted:
        """Return a program with its results on the golden machine and its cycles on this one."""
        program, golden = fitting_program(config, rng, STEPS), Interpreter(config)
        program.load(golden)
        report = golden.start()
        self.machine.reset(2, cold=True)
        self.machine.wait(1_000_000)
        program.load(self.machine)
        self.machine.begin()
        self.machine.wait(1_000_000)
        cycles = self.machine.read_register("CYCLES_LOW")
        wanted = _Wanted(program, report, program.stored(golden), cycles)
        self.cold.append(self._differs(wanted))
        return wanted

    def trial(self, kind: str) -> Trial:
        """Disturb a run, check the next run, and return the outcome as a :class:`Trial`.

        ``kind`` is the disturbance, a name in ``KINDS``. The next run must give the golden
        machine's results. Unless the machine is microcoded, the next run must also take as many
        cycles as an undisturbed run.
        """
        rng, machine = self._rng, self.machine
        first, second = (self._wanted[rng.integers(len(self._wanted))] for _ in range(2))
        words = first.program.words
        first.program.load(machine, self._refused(words) if kind == "refusal" else words)
        machine.begin()
        cycle = int(rng.integers(1.05 * first.cycles))
        machine.clock(cycle)
        _HAPPENS[kind](machine, rng)
        waited = machine.wait(self._bound + first.cycles)
        status = machine.read_register("STATUS")
        cause = cause_of(status)
        mismatch = ""
        if status & STATUS_BUSY:
            mismatch = f"STATUS is busy after {waited} cycles"
        elif bool(status & STATUS_ERROR) != (cause != Cause.NONE):
            mismatch = f"STATUS {status:#x} tells an error or none against its cause"
        elif cause not in _CAUSES[kind]:
            mismatch = f"STATUS tells {cause.name}"
        elif cause == Cause.NONE and kind not in ("reset", "cold reset"):
            mismatch = self._differs(first, cut_off=kind == "abort and start")
        # Memory speaks again before the host asks for anything, or a little after that.
        late = kind == "silence" and cause == Cause.SILENCE and rng.random() < 0.5
        if not late:
            machine.behave(MemoryBehaviour.ANSWERS)
        return Trial(kind, cycle, cause, mismatch or self._next(second, late=late))

    def _refused(self, words: list[int]) -> list[int]:
        """Return a program up to one of its instructions, followed by an illegal word."""
        places = [0]
        while places[-1] < len(words):
            opcode = Opcode(words[places[-1]] & _ILLEGAL)
            places.append(places[-1] + 1 + len(DEFINITIONS[opcode].operands))
        return [*words[: self._rng.choice(places[:-1])], _ILLEGAL]

    def _next(self, wanted: _Wanted, *, late: bool) -> str:
        """Run the next program; return a description of its error, or nothing."""
        machine = self.machine
        machine.report()  # the signatures of the run that was cut off
        wanted.program.load(machine)
        machine.begin()
        if late:
            machine.clock(int(self._rng.integers(machine.config.control.watchdog // 2)))
            machine.behave(MemoryBehaviour.ANSWERS)
        if machine.wait(self._bound + wanted.cycles) >= self._bound + wanted.cycles:
            return "the next run hangs"
        status = machine.read_register("STATUS")
        if status:
            return f"the next run ends with STATUS {status:#x}"
        return self._differs(wanted, cut_off=late)

    def _differs(self, wanted: _Wanted, *, cut_off: bool = False) -> str:
        """Describe how a run's results differ from the expected ones; empty if they do not.

        If a run was cut off since the signatures were last cleared, they include its part and are
        not compared.
        """
        report = self.machine.report()
        if report.signatures != wanted.report.signatures and not cut_off:
            return "signatures differ"
        if wanted.program.stored(self.machine) != wanted.result:
            return "external memory differs"
        if report.cycles != wanted.cycles and self.machine.config.micro is None:
            return f"{report.cycles} cycles instead of {wanted.cycles}"
        return ""


def _reset(cold: bool) -> Callable[[VerilatorMachine, np.random.Generator], None]:
    return lambda machine, rng: machine.reset(int(rng.integers(1, 5)), cold=cold)


def _control(value: int) -> Callable[[VerilatorMachine, np.random.Generator], None]:
    return lambda machine, _rng: machine.write_register("CONTROL", value)


def _memory(behaviour: MemoryBehaviour) -> Callable[[VerilatorMachine, np.random.Generator], None]:
    return lambda machine, _rng: machine.behave(behaviour)


def _forget(machine: VerilatorMachine, _rng: np.random.Generator) -> None:
    """Let the host write FORGET while external memory is reset."""
    machine.behave(MemoryBehaviour.SILENT)
    machine.write_register("CONTROL", CONTROL_FORGET)
    machine.reset(0, cold=True)
    machine.behave(MemoryBehaviour.ANSWERS)


def _abort_in_silence(machine: VerilatorMachine, rng: np.random.Generator) -> None:
    """Let the host abort while memory is silent, at most for twice the watchdog's time."""
    machine.behave(MemoryBehaviour.SILENT)
    machine.clock(int(rng.integers(200)))
    machine.write_register("CONTROL", CONTROL_ABORT)
    machine.clock(int(rng.integers(2 * machine.config.control.watchdog)))
    machine.behave(MemoryBehaviour.ANSWERS)


_HAPPENS: dict[str, Callable[[VerilatorMachine, np.random.Generator], None]] = {
    "reset": _reset(False),
    "cold reset": _reset(True),
    "abort": _control(CONTROL_ABORT),
    "abort and start": _control(CONTROL_ABORT | CONTROL_START),
    "forget": _forget,
    "refusal": lambda _machine, _rng: None,
    "silence": _memory(MemoryBehaviour.SILENT),
    "error": _memory(MemoryBehaviour.FAILS),
    "abort in silence": _abort_in_silence,
}

_CAUSES = {
    "reset": {Cause.NONE},
    "cold reset": {Cause.NONE},
    "abort": {Cause.NONE, Cause.ABORTED},
    "abort and start": {Cause.NONE},
    "forget": {Cause.NONE, Cause.ABORTED},
    "refusal": {Cause.INSTRUCTION},
    "silence": {Cause.NONE, Cause.SILENCE},
    "error": {Cause.NONE, Cause.MEMORY},
    "abort in silence": {Cause.NONE, Cause.ABORTED},
}
