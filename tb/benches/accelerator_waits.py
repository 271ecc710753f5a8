"""Trials of the accelerator with long waits for memory's answers or for dependency tokens."""

from collections.abc import Awaitable, Callable

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Engine, Opcode
from celosia.arch.registers import (
    CONTROL_ABORT,
    CONTROL_START,
    INTERRUPT_DONE,
    STATUS_BUSY,
    STATUS_RECOVERING,
    Cause,
)
from celosia.hdl.control.span import PAUSE_WIDTH
from celosia.sim.regions import ceil_div
from celosia.tb.benches.accelerator_runs import SHORT, Runs
from celosia.tb.benches.accelerator_trials import SLACK, Trials
from celosia.tb.benches.slow_memory import CHANNELS

LONGEST_WATCHDOG = 2000
"""Longest field ``watchdog`` for which the bench waits (cycles)."""


class LongTrials(Trials):
    """Trials that disturb a run of the accelerator, including long trials for the watchdog.

    There are no long trials if the configuration has no watchdog, or if its field ``watchdog``
    exceeds ``LONGEST_WATCHDOG`` cycles.
    """

    def __init__(self, runs: Runs):
        super().__init__(runs)
        self._silences = 0
        self._ticks: list[int] = []

    def all(self) -> list[Callable[[], Awaitable[None]]]:
        """Return all trials, in the order in which :meth:`run` calls them.

        A trial is a method that disturbs a run of the accelerator and checks the accelerator's
        reaction. The trials of :class:`Trials` come first, and then the long trials, if there are
        any.
        """
        if not 0 < self.config.control.watchdog <= LONGEST_WATCHDOG:
            return super().all()
        silences = [self.silence] * len(CHANNELS)
        return [
            *super().all(),
            self.deadlock,
            *silences,
            self.slow,
            self.silent_start,
            self.silent_reset,
            self.pause,
        ]

    def _tick(self) -> None:
        """Check that a fault is reported when the watchdog ticks, which happens periodically."""
        self._ticks.append(self.host.cycles)
        # STATUS is read in every other cycle.
        assert (self._ticks[-1] - self._ticks[0] + 2) % self.config.control.watchdog <= 4

    async def silent_reset(self) -> None:
        """Reset the accelerator during a write that memory does not complete.

        After the reset, the watchdog must report the error SILENCE.
        """
        host, memory, dut = self.host, self.memory, self.dut
        await self.begin()
        while not memory.owes_reports:
            await host.cycle()
        memory.silent = frozenset(CHANNELS)
        dut.rst.value = 1
        memory.let_go()
        await host.cycle()
        memory.let_go()
        dut.rst.value = 0
        host.quiet, self.runs.enable = True, 0
        cycles = await self.stopped(Cause.SILENCE, SHORT)
        assert abs(cycles - 2 * self.config.control.watchdog) <= SLACK // 8
        memory.silent = frozenset()
        while await host.read("STATUS") & STATUS_RECOVERING:
            pass
        assert not memory.owes
        assert await host.read("INTERRUPT") == 0

    async def deadlock(self) -> None:
        """Run a command that waits forever; the watchdog must report the error DEADLOCK.

        From the start of the run to the error in STATUS, ``watchdog`` to
        ``2 * watchdog + shortest + SLACK`` cycles may pass. ``watchdog`` is a field of the
        configuration, ``shortest`` is the length of the fastest short run.
        """
        watchdog = self.config.control.watchdog
        wait = Instruction(Opcode.LOAD, {"m": 0}, pop=frozenset({Engine.MATRIX}))
        for _ in range(3):
            await self.begin([*pack([wait]), Opcode.HALT])
            cycles = await self.stopped(Cause.DEADLOCK, SHORT)
            # The commands before the one that waits take about the time of the shortest run.
            assert watchdog <= cycles <= 2 * watchdog + self.runs.shortest + SLACK
            self._tick()
            await self.over(Cause.DEADLOCK)

    async def silence(self) -> None:
        """Stop one channel of external memory in a run; the watchdog must report SILENCE in time.

        Each call stops the next channel in ``CHANNELS``. From the run's start to the error,
        ``watchdog`` to ``2 * watchdog + shortest + SLACK`` cycles may pass. In half of the calls a
        second run must end with SILENCE, too.
        """
        channel = CHANNELS[self._silences % len(CHANNELS)]
        self._silences += 1
        watchdog, memory = self.config.control.watchdog, self.memory
        await self.begin()
        memory.silent = frozenset({channel})
        cycles = await self.stopped(Cause.SILENCE, SHORT)
        assert watchdog <= cycles <= 2 * watchdog + self.runs.shortest + SLACK
        self._tick()
        assert await self.host.ends(10) & STATUS_RECOVERING
        if self.random.random() < 0.5:
            await self.host.write("CONTROL", CONTROL_START)
            assert await self.host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
            cycles = await self.stopped(Cause.SILENCE, SHORT)
            assert cycles <= 2 * watchdog + SLACK
        memory.silent = frozenset()
        await self.over(Cause.SILENCE)

    async def silent_start(self) -> None:
        """Abort a run while external memory does not answer, and request a new run.

        The new run must wait until external memory has completed the transfers of the aborted run.
        The new run's results must equal the golden machine's.
        """
        host, memory = self.host, self.memory
        await self.begin()
        while not memory.owes:
            await host.cycle()
        memory.silent = frozenset(CHANNELS)
        await host.write("CONTROL", CONTROL_ABORT)
        await host.write("CONTROL", CONTROL_START)
        for _ in range(self.config.control.watchdog // 4):
            assert await host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
        memory.silent = frozenset()
        await self.exact()

    async def slow(self) -> None:
        """Let external memory pause again and again, each time for ``watchdog - 100`` cycles.

        The watchdog must not report an error, and the run's results must equal the golden
        machine's.
        """
        host, memory = self.host, self.memory
        await self.begin()
        status = STATUS_BUSY
        while status & STATUS_BUSY:
            memory.silent = frozenset(CHANNELS)
            for _ in range((self.config.control.watchdog - 100) // 2):
                status = await host.read("STATUS")
            memory.silent = frozenset()
            for _ in range(25):
                status = await host.read("STATUS")
        await self.exact()

    async def pause(self) -> None:
        """Pause the array longer than the counter SPAN_MATRIX can count, and check the counter.

        SPAN_MATRIX counts the cycles from the array's first product to its last. A pause between
        products counts as at most 2**PAUSE_WIDTH - 1 cycles. The counter must agree with the trace
        port's events.
        """
        host, events = self.host, self.host.events
        if events is None or not self.config.control.counters:
            return
        product = Instruction(Opcode.MATMUL, {"m": 1, "k": 1, "n": 1})
        wait = Instruction(Opcode.SET, {"register": 1})
        words = pack([wait, Instruction(Opcode.ENDLOOP)])
        longest = 1 << PAUSE_WIDTH
        loop = Instruction(Opcode.LOOP, {"count": ceil_div(longest + SLACK, len(words) + 1)})
        short = pack([Instruction(Opcode.LOOP, {"count": 380})])
        words = [*pack([product]), *short, *words, *pack([product, loop]), *words]
        words += [*pack([product]), Opcode.HALT]
        await host.load(words, self.runs.place(words))
        host.clear()
        host.follows = True
        await host.start()
        while events.done[Engine.MATRIX] < 2:
            await host.cycle()
        await host.skip(longest)
        host.quiet = False
        assert await host.ends(SHORT + longest) == 0
        assert await host.read("SPAN_MATRIX_LOW") == events.span
        await self.runs.interrupted(INTERRUPT_DONE)
        # The sums are arbitrary.
        await host.write("CONTROL", CONTROL_ABORT)
        assert await host.ends(self.bound) == 0
