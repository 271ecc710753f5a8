"""Trials of the accelerator: each trial disturbs a run, then checks a run without disturbance."""

from collections.abc import Awaitable, Callable

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Engine, Opcode
from celosia.arch.registers import (
    CAUSE_SHIFT,
    CONTROL_ABORT,
    CONTROL_FORGET,
    CONTROL_START,
    INTERRUPT_DONE,
    INTERRUPT_ERROR,
    STATUS_BUSY,
    STATUS_ERROR,
    STATUS_RECOVERING,
    Cause,
)
from celosia.sim.interpreter import Interpreter
from celosia.tb.benches.accelerator_runs import SHORT, Runs
from celosia.tb.benches.slow_memory import CHANNELS
from celosia.tb.machine.short_programs import ShortProgram, short_program

SLACK = 200
"""Cycles by which a run may be longer than another, or its end be reported late."""
_ILLEGAL = 0x1F  # no opcode
_DEEP = 12  # nested loops


def refused() -> dict[Cause, list[list[int]]]:
    """Return invalid instructions: a dictionary from an error's cause to a list of examples.

    Each example is a list of instruction words. If a program contains valid instructions and then
    the example, its run must stop, and STATUS must report the cause to which the example belongs.
    """
    loop = Instruction(Opcode.LOOP, {"count": 1})
    return {
        Cause.INSTRUCTION: [[_ILLEGAL], [Opcode.HALT | 1 << 31]],
        Cause.LOOP: [
            pack([Instruction(Opcode.ENDLOOP)]),
            pack([Instruction(Opcode.LOOP, {"count": 0})]),
            pack([loop] * _DEEP),
        ],
        Cause.REGISTER: [pack([Instruction(Opcode.SET, {"register": 0, "value": 1})])],
    }


class Trials:
    """Methods that each disturb a run of the accelerator, and check how the accelerator reacts.

    :meth:`all` returns a list of these methods. The list contains some methods several times, since
    each call selects a new random time or invalid instruction.
    """

    def __init__(self, runs: Runs):
        self.runs, self.host, self.memory, self.random = runs, runs.host, runs.memory, runs.random
        self.config, self.dut = runs.config, runs.dut
        # The started program, a golden machine before it, and whether all of it can run.
        self.before: tuple[ShortProgram, Interpreter]
        self.whole = True
        # Cycles from a reset until a run may begin, including all outstanding memory transfers.
        self.bound = 3000 + self.config.accumulators.depth

    def all(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the methods that are trials, in the order in which :meth:`run` calls them."""
        return [
            *(self.abort, self.abort, self.abort_and_start, self.reset, self.refusal, self.error),
            *(self.lost, self.forget, self.nothing, self.outside, self.abort_in_recovery),
            *(self.refusal, self.abort, self.reset, self.overflow, self.late_start),
        ]

    async def run(self, count: int) -> None:
        """Run the first ``count`` trials of :meth:`all`, each between two undisturbed runs.

        A trial disturbs a run of the accelerator, and checks the accelerator's reaction. Each
        undisturbed run is compared with the golden machine. If ``count`` is 0, nothing runs.
        """
        if count:
            await self.runs.short()
        for kind in self.all()[:count]:
            await kind()
            await self.runs.short()

    async def begin(self, tail: list[int] | None = None) -> int:
        """Start a random short program, and return a lower bound of the cycles that its run takes.

        The bound is two thirds of the cycles of the fastest short run so far. If ``tail`` is given,
        these instruction words replace the program's HALT; otherwise the program is not changed.
        """
        runs, host, golden = self.runs, self.host, Interpreter(self.config)
        program = short_program(self.config, self.random)
        if tail is not None:
            program.words[-1:] = tail
        await runs.give(golden, program)
        self.before, self.whole = (program, golden), tail is None
        await runs.set_enable()
        await host.start()
        host.quiet = host.follows = False
        return self.runs.shortest * 2 // 3

    async def some(self, most: int) -> None:
        """Run the clock for a random number of cycles below ``most``."""
        for _ in range(int(self.random.integers(most))):
            await self.host.cycle()

    async def stopped(self, cause: Cause, limit: int | None = None) -> int:
        """Wait until STATUS reports an error with the given ``cause``; return the cycles waited.

        An assertion fails if STATUS reports another cause, or none within ``limit`` cycles. The
        default limit is the attribute ``bound``: the most cycles that may pass after a reset before
        a run can begin.
        """
        host, begin = self.host, self.host.cycles
        told = STATUS_ERROR | cause << CAUSE_SHIFT
        limit = self.bound if limit is None else limit
        while (status := await host.read("STATUS")) >> CAUSE_SHIFT == 0:
            assert host.cycles < begin + limit, "STATUS tells no cause"
        cycles = host.cycles - begin
        either = STATUS_BUSY | STATUS_RECOVERING
        assert status | either == told | either, f"{status:#x} instead of {cause.name}"
        return cycles

    async def over(self, cause: Cause, cycles: int | None = None) -> None:
        """Wait until the accelerator has recovered from a stopped run; check registers and memory.

        The accelerator must not be busy after ``cycles`` cycles, by default ``bound``. STATUS must
        report the error ``cause``, and INTERRUPT must report an error. External memory must have no
        open requests, and no wrong bytes (see :meth:`stored`).
        """
        host, begin = self.host, self.host.cycles
        status = await host.ends(self.bound if cycles is None else cycles)
        while status & STATUS_RECOVERING:
            assert host.cycles < begin + self.bound, "the machine does not recover"
            status = await host.read("STATUS")
        assert status == STATUS_ERROR | cause << CAUSE_SHIFT
        assert not self.memory.owes
        await self.runs.interrupted(INTERRUPT_ERROR)
        self.stored()

    def stored(self) -> None:
        """Assert that a stopped run has written no wrong byte to external memory.

        If the program ends with HALT, each byte must have its value from before the run or from
        after a complete run. Otherwise the bytes of the program's result may have any values, and
        all other bytes must be unchanged.
        """
        program, golden = self.before
        content = self.memory.bytes
        old = golden.dram[: content.size].copy()
        differs = content != old
        if self.whole:
            golden.start()
            differs &= content != golden.dram[: content.size]
        else:
            differs[program.result_addr :][: program.result_bytes] = False
        assert not differs.any()

    async def exact(self) -> None:
        """Wait until a run ends without errors, and compare its results with the golden machine's.

        The golden machine runs the program that :meth:`begin` has loaded. All of external memory is
        compared, and INTERRUPT must report the end of the run.
        """
        _, golden = self.before
        golden.start()
        assert await self.host.ends(SHORT) == 0
        assert (self.memory.bytes == golden.dram[: self.memory.bytes.size]).all()
        await self.runs.interrupted(INTERRUPT_DONE)

    async def abort(self) -> None:
        """Abort a run at a random time, and check that it stops with the cause ABORTED."""
        await self.some(await self.begin())
        await self.host.write("CONTROL", CONTROL_ABORT)
        await self.stopped(Cause.ABORTED)
        await self.over(Cause.ABORTED)

    async def abort_and_start(self) -> None:
        """Abort and restart a run by one write to CONTROL; check the results of the new run."""
        await self.some(await self.begin())
        await self.host.write("CONTROL", CONTROL_ABORT | CONTROL_START)
        assert await self.host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
        await self.exact()

    async def abort_in_recovery(self) -> None:
        """Abort a run, request a second run, and abort the second run before it begins.

        After the first abort, the accelerator waits for outstanding memory transfers (recovery).
        The host requests the second run during the recovery. After the second abort, STATUS must
        report an error with the cause ABORTED.
        """
        host = self.host
        await self.some(await self.begin())
        for value in (CONTROL_ABORT, CONTROL_START):
            await host.write("CONTROL", value)
        assert await host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
        await host.write("CONTROL", CONTROL_ABORT)
        await self.stopped(Cause.ABORTED, 10)
        await self.over(Cause.ABORTED)

    async def late_start(self) -> None:
        """Abort a run, request a new run during the recovery, and check the results of the new run.

        During the recovery, the accelerator waits for outstanding memory transfers of the aborted
        run. The results of the new run must equal those of the golden machine.
        """
        await self.some(await self.begin())
        await self.host.write("CONTROL", CONTROL_ABORT)
        await self.host.write("CONTROL", CONTROL_START)
        await self.exact()

    async def nothing(self) -> None:
        """Send a memory error and an abort while no run is active, and a start during a run.

        The memory error must not change STATUS. The abort must raise no interrupt. The start during
        a run must not change the run's results.
        """
        host = self.host
        await self._mem("mem_error")
        assert await host.read("STATUS") == 0
        # Memory owes no transfers, and may be silent.
        self.memory.silent = frozenset(CHANNELS)
        await host.write("CONTROL", CONTROL_ABORT)
        assert await host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
        assert await host.ends(self.bound) == 0
        self.memory.silent = frozenset()
        await host.cycle()
        assert await host.read("INTERRUPT") == 0
        await self.begin()
        await self.some(100)
        await host.write("CONTROL", CONTROL_START)
        await self.exact()

    async def reset(self) -> None:
        """Reset the accelerator (not external memory) during a run; check registers and memory.

        STATUS must show that the accelerator is recovering; PC, INTERRUPT and INTERRUPT_ENABLE must
        be 0.
        """
        host, dut = self.host, self.dut
        await self.some(await self.begin())
        dut.rst.value = 1
        self.memory.let_go()
        for _ in range(int(self.random.integers(1, 5))):
            await host.cycle()
            self.memory.let_go()
        dut.rst.value = 0
        host.quiet = True
        self.runs.enable = 0
        assert await host.read("STATUS") == STATUS_BUSY | STATUS_RECOVERING
        for name in ("PC", "INTERRUPT", "INTERRUPT_ENABLE"):
            assert await host.read(name) == 0
        assert await host.ends(self.bound) == 0
        assert not self.memory.owes
        self.stored()

    async def refusal(self) -> None:
        """Run a program with an invalid word after valid ones, and check the error's cause."""
        refusals = refused()
        cause = Cause(self.random.choice([int(cause) for cause in refusals]))
        words = refusals[cause]
        await self.begin([*words[self.random.integers(len(words))], Opcode.HALT])
        await self.stopped(cause)
        await self.over(cause)

    async def outside(self) -> None:
        """Run programs past the end of program memory, and check that they stop with an error.

        Two runs start at an address past the end. A third run executes the last words of program
        memory, and then continues past the end.
        """
        host, depth = self.host, self.config.control.program_depth
        for pc in (depth, 1 << 31):
            await self.begin()
            await self.exact()
            host.quiet = False
            await host.write("PC", pc)
            await host.write("CONTROL", CONTROL_START)
            await self.stopped(Cause.PROGRAM, 10)
            assert await host.ends(10) == STATUS_ERROR | Cause.PROGRAM << CAUSE_SHIFT
            await self.runs.interrupted(INTERRUPT_ERROR)
        words = pack([Instruction(Opcode.SET, {"register": 1, "value": 1})])
        await host.load(words, depth - len(words))
        await host.start()
        host.quiet = False
        await self.stopped(Cause.PROGRAM, 40)
        await host.ends(self.bound)
        await self.runs.interrupted(INTERRUPT_ERROR)

    async def _mem(self, name: str) -> None:
        getattr(self.dut, name).value = 1
        await self.host.cycle()
        getattr(self.dut, name).value = 0

    async def error(self) -> None:
        """Let external memory report an error; the run must stop with the cause MEMORY."""
        await self.some(await self.begin())
        await self._mem("mem_error")
        await self.stopped(Cause.MEMORY)
        await self.over(Cause.MEMORY)

    async def lost(self) -> None:
        """Reset external memory during a run, so that it loses its outstanding requests.

        The run must stop with the cause MEMORY.
        """
        await self.some(await self.begin())
        self.memory.silent = frozenset(CHANNELS)
        self.dut.mem_reset.value = 1
        for _ in range(3):
            await self.host.cycle()
            self.memory.forget()
        self.dut.mem_reset.value = 0
        self.memory.silent = frozenset()
        await self.stopped(Cause.MEMORY)
        await self.over(Cause.MEMORY)

    async def forget(self) -> None:
        """Let external memory drop its open requests during a run, and report this to the machine.

        The report is a write of the bit FORGET to the register CONTROL. The accelerator must stop
        with the cause ABORTED, without waiting for the dropped requests.
        """
        await self.some(await self.begin())
        self.memory.silent = frozenset(CHANNELS)
        await self.host.cycle()
        await self.host.write("CONTROL", CONTROL_FORGET)
        self.memory.forget()
        # Words that still arrive are not accepted, and do not count.
        self.memory.stray = True
        for _ in range(3):
            await self.host.cycle()
        self.memory.stray = False
        self.memory.silent = frozenset()
        await self.stopped(Cause.ABORTED)
        await self.over(Cause.ABORTED)

    async def overflow(self) -> None:
        """Push more dependency tokens to an engine than its counter allows.

        The run must stop with the cause TOKENS.
        """
        give = Instruction(Opcode.PARAMS, {"n": 1}, push=frozenset({Engine.STORE}))
        loop = Instruction(Opcode.LOOP, {"count": 300})
        await self.begin([*pack([loop, give, Instruction(Opcode.ENDLOOP)]), Opcode.HALT])
        await self.stopped(Cause.TOKENS, SHORT)
        await self.over(Cause.TOKENS)
