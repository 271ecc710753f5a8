"""Machines that run programs in a fast simulation of the accelerator, without cocotb.

The machines have the methods of ``celosia.sim.interpreter.Interpreter``, so that the same code can
run a program on a simulated machine or on the golden machine, and compare the results.
"""

import contextlib
import shutil
import subprocess
import threading
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import IO

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.registers import REGISTER_MAP, STATUS_BUSY, STATUS_ERROR
from celosia.arch.support.cache import run_folder
from celosia.arch.support.process import tail
from celosia.generators.runtime.host_port import HostPort
from celosia.sim.report import Report
from celosia.tb.machine.fast_build import build_icarus, build_verilator
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.recording import Recording, recording
from celosia.tb.machine.toolchain import environment


class MemoryBehaviour(Enum):
    """Behaviours of a simulated external memory: it answers, does not answer, or reports errors."""

    ANSWERS = 0
    """The memory answers all requests with its usual timing."""
    SILENT = 1
    """The memory accepts no request or word, and offers no word or report."""
    FAILS = 2
    """The memory reports an error at every word."""


class SimulatedMachine(HostPort):
    """A simulated accelerator with external memory of at most ``2**mem_addr_width`` bytes.

    ``timing`` has fields of :class:`celosia.tb.machine.memory_timing.MemoryTiming`. A run fails
    after ``limit`` cycles or ``timeout`` seconds. The simulation ends if :meth:`close` is called or
    the object is deleted.
    """

    def __init__(
        self,
        config: Config,
        *,
        memory_bytes: int,
        limit: int = 100_000_000,
        timeout: float = 1200.0,
        **timing: int,
    ):
        self.config = config
        self._limit = limit
        self._timeout = timeout
        self._window = 0
        self._recovered = False  # since its reset, as far as is known
        self.recordings: list[Recording] = []
        """Recorded runs; see :meth:`record`."""
        self._log = run_folder("machine") / "simulation.log"
        memory_bytes = min(memory_bytes, 1 << config.memory.addr_width)
        command = self._command(memory_bytes, MemoryTiming(**timing))
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                encoding="ascii",
            )
        self.close = weakref.finalize(self, end_simulation, self._process, self._log)

    @abstractmethod
    def _command(self, memory_bytes: int, timing: MemoryTiming) -> list[str | Path]:
        """Build the simulation, and return the command that runs it."""

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory from the byte address ``addr`` on."""
        padded = data + bytes(-len(data) % 8)
        words = np.frombuffer(padded, "<u8").astype(">u8").tobytes().hex(" ", 8)
        self._send(f"w {addr:x} {len(data):x} {words}\n")

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of external memory from the byte address ``addr`` on."""
        if not count:
            return b""
        (line,) = self._ask(f"r {addr:x} {count:x}\n")
        return np.frombuffer(bytes.fromhex(line), ">u8").astype("<u8").tobytes()[:count]

    def load_program(self, words: Sequence[int]) -> None:
        """Load the words of a program to program memory, from word 0 on.

        Raises :class:`InputError` if the words do not fit the program memory.
        """
        self.check_program(words)
        self.write_register("PROGRAM_ADDR", 0)
        addr = REGISTER_MAP["PROGRAM_DATA"].addr
        self._send("".join(f"h {addr:x} {word:x}\n" for word in words))

    def write_register(self, name: str, value: int) -> None:
        """Write a value to the register ``name`` of the host port."""
        self._send(f"h {REGISTER_MAP[name].addr:x} {value % (1 << 32):x}\n")

    def read_registers(self, names: Sequence[str]) -> list[int]:
        """Return the values of the host port's registers ``names``, in the same order."""
        commands = "".join(f"g {REGISTER_MAP[name].addr:x}\n" for name in names)
        return [int(line, 16) for line in self._ask(commands, len(names))]

    def start(self, pc: int = 0) -> Report:
        """Run the loaded program from the word address ``pc`` until HALT; return the run's report.

        The report has cycles, counters and signatures (see :meth:`report`). Raises
        :class:`RunError` if the circuit reports an error, or if the run takes more than ``limit``
        cycles or ``timeout`` seconds.
        """
        self._recover()
        self.begin(pc)
        if self.wait(self._limit) >= self._limit:
            raise RunError(f"The run did not halt within {self._limit} cycles")
        status = self.read_register("STATUS")
        if status & STATUS_ERROR:
            self._ask("t\n")  # drops earlier writes
        self.check_status(status)
        return self.report()

    def report(self) -> Report:
        """Return a report of the last run: cycles, counters and signatures.

        A signature is a hash of the bytes that one vector instruction wrote. If the run was
        recorded (see :meth:`record`), also append its recording to ``recordings``.
        """
        values = self.counters()
        (line,) = self._ask("t\n")
        signatures = [int(word, 16) for word in line.split()[1:]]
        cycles = values.pop("cycles")
        if self._window:
            self.recordings.append(self._recording(cycles))
        return Report(cycles=cycles, counters=values, signatures=signatures)

    def wait(self, limit: int) -> int:
        """Run the clock until the register STATUS is not busy, but for at most ``limit`` cycles.

        Return the number of cycles run, which is ``limit`` if STATUS is still busy.
        """
        status = REGISTER_MAP["STATUS"].addr
        (line,) = self._ask(f"s {status:x} {STATUS_BUSY:x} 0 {limit:x}\n")
        cycles, done = line.split()
        return int(cycles) if done == "1" else limit

    def _recover(self) -> None:
        """Wait until a run begins as soon as it is started, for recordings."""
        if not self._recovered:
            self.wait(self._limit)
            self._recovered = True

    def record(self, window: int = 256) -> None:
        """Record all later runs in the list ``recordings``, or none if ``window`` is 0.

        For each window of ``window`` cycles, a recording counts the array's busy and idle cycles
        and the memory words transferred. Raises :class:`InputError` if the configuration has no
        trace ports or is microcoded.
        """
        if not self.config.control.trace:
            raise InputError(
                f"Recording a run needs the field trace, which {self.config.name} lacks"
            )
        if self.config.micro is not None:
            raise InputError(
                f"Recording a run needs engines, which {self.config.name}, microcoded, lacks"
            )
        self._recover()
        self._window = window
        self._send(f"v {window:x}\n")

    def _recording(self, cycles: int) -> Recording:
        (line,) = self._ask("e\n")
        numbers = [int(word, 16) for word in line.split()[1:]]
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        return recording(pairs, cycles, self._window)

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
        except OSError:
            self._fail("")

    def _ask(self, text: str, lines: int = 1) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        alarm = threading.Timer(self._timeout, self._process.kill)
        alarm.start()
        try:
            self._send(text)
            self._process.stdin.flush()
            return [self._answer(self._process.stdout) for _ in range(lines)]
        except OSError:
            self._fail("")
            raise
        finally:
            alarm.cancel()
            alarm.join()

    def _answer(self, stream: IO[str]) -> str:
        line = stream.readline().strip()
        if not line or line.startswith("error") or "x" in line:
            self._fail(line)
        return line

    def _fail(self, line: str) -> None:
        self._process.kill()
        code = self._process.wait()
        reason = line or f"ended with exit code {code}\n{tail(self._log)}"
        raise RunError(f"The simulation failed: {reason}")


class VerilatorMachine(SimulatedMachine):
    """A machine whose accelerator is simulated by Verilator.

    - ``verilog``: Verilog to simulate in place of the accelerator, or None.
    - ``quick``: compile ``verilog`` fast, for a slower simulation.
    - ``contents``: seed of random initial values; 0 sets zeros, None keeps the circuit's values.
    - ``coverage``: path of the file for coverage counts, or None.

    Raises :class:`InputError` if a tool is missing, and :class:`RunError` if the build fails.
    """

    def __init__(
        self,
        config: Config,
        *,
        memory_bytes: int = 1 << 28,
        verilog: str | None = None,
        contents: int | None = None,
        coverage: Path | None = None,
        quick: bool = True,
        **options: float,
    ):
        self._coverage = coverage
        self._quick = quick
        self._verilog = verilog
        self._contents = contents
        super().__init__(config, memory_bytes=memory_bytes, **options)

    def clock(self, cycles: int) -> None:
        """Run the clock for ``cycles`` cycles."""
        self._send(f"n {cycles:x}\n")

    def reset(self, cycles: int = 1, *, cold: bool = False) -> None:
        """Reset the accelerator for ``cycles`` cycles, and external memory if ``cold`` is true.

        A reset of external memory drops its pending requests, but not its content. If ``cycles`` is
        0, the accelerator is not reset.
        """
        self._send(f"x {cycles:x} {int(cold)}\n")
        self._recovered &= not cycles

    def behave(self, behaviour: MemoryBehaviour) -> None:
        """Set whether external memory answers, is silent or reports errors from now on."""
        self._send(f"k {behaviour.value}\n")

    def interrupted(self) -> bool:
        """Return whether the interrupt line ``irq`` is 1."""
        return self._ask("i\n") == ["1"]

    def write_coverage(self) -> None:
        """Write the coverage file: Verilator's coverage points and the number of hits of each."""
        self._ask("c\n")

    def _command(self, memory_bytes: int, timing: MemoryTiming) -> list[str | Path]:
        random_start, covered = self._contents is not None, self._coverage is not None
        folder = build_verilator(
            self.config,
            self._verilog,
            random_start=random_start,
            coverage=covered,
            quick=self._quick,
        )
        file = [f"+verilator+coverage+file+{self._coverage}"] * covered
        mode = 2 if self._contents else 0
        random = [f"+verilator+rand+reset+{mode}", f"+verilator+seed+{self._contents or 1}"]
        random *= random_start
        return [
            *(folder / "harness", *random, *file),
            *(str(memory_bytes), *map(str, timing.fields().values())),
        ]


class IcarusMachine(SimulatedMachine):
    """A configuration's accelerator, simulated by Icarus, about 100 times slower than Verilator.

    Raises :class:`InputError` if Icarus is missing, and :class:`RunError` if the build fails.
    """

    def __init__(self, config: Config, *, memory_bytes: int = 1 << 20, **options: float):
        super().__init__(config, memory_bytes=memory_bytes, **options)

    def _command(self, memory_bytes: int, timing: MemoryTiming) -> list[str | Path]:
        program = build_icarus(self.config, memory_bytes) / "harness.vvp"
        options = {"size": memory_bytes, **timing.fields()}
        return ["vvp", "-n", program, *(f"+{name}={value}" for name, value in options.items())]


def end_simulation(process: subprocess.Popen[str], log: Path) -> None:
    """End the process of a simulation, and remove the folder that contains its log."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # buffered commands have no reader
                stream.close()
    process.wait()
    shutil.rmtree(log.parent, ignore_errors=True)
