"""Starts an SDRAM chip after power-on, and refreshes it."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.sdram import POSTPONED, URGENT, SdramTiming
from celosia.hdl.component import Component
from celosia.hdl.memory.sdram.pins import Command

REFRESHES = 8
"""Number of refreshes in the start-up, before the mode register is set."""


class Upkeep(Component):
    """Starts an SDRAM chip after power-on or reset, and refreshes it.

    - ``ready``: 1 after the start.
    - ``wanted``: 1 if a refresh is due.
    - ``urgent``: 1 if at least ``URGENT`` refreshes are due.
    - ``quiet``: must be 1 if no data move and all rows may be closed. A due refresh then begins.
    - ``working``: 1 during the start and a refresh. The controller must then send ``command`` to
      the chip, with a PRECHARGE to all banks.
    """

    def __init__(self, timing: SdramTiming):
        super().__init__(
            {
                "ready": Out(1),
                "wanted": Out(1),
                "urgent": Out(1),
                "quiet": In(1),
                "working": Out(1, init=1),
                "command": Out(Command, init=Command.NOTHING),
            }
        )

    def circuit(self, m):
        timing = self.timing
        wait = Signal(range(max(timing.init, timing.rfc, timing.rp, timing.mrd) + 1))
        over = Signal()
        begun = Signal(range(REFRESHES + 1))
        m.d.comb += over.eq(wait == 0)
        m.d.sync += wait.eq(Mux(over, 0, wait - 1))
        m.d.comb += self.command.eq(Command.NOTHING)

        since = Signal(range(timing.refresh))
        owed = Signal(range(POSTPONED + 1))
        due, done = Signal(), Signal()
        m.d.comb += [
            due.eq(self.ready & (since == timing.refresh - 1)),
            self.wanted.eq(owed != 0),
            self.urgent.eq(owed >= URGENT),
        ]
        m.d.sync += [
            since.eq(Mux(due | ~self.ready, 0, since + 1)),
            owed.eq(owed + (due & (owed != POSTPONED)) - done),
        ]

        def then(command: Command, cycles: int, state: str) -> None:
            """Issue a command, and enter a state after its time."""
            m.d.comb += self.command.eq(command)
            m.d.sync += wait.eq(cycles - 1)
            m.next = state

        with m.FSM():
            with m.State("POWER"):
                m.d.sync += wait.eq(timing.init)
                m.next = "CLOSE"
            with m.State("CLOSE"), m.If(over):
                then(Command.PRECHARGE, timing.rp, "REFRESH")
            with m.State("REFRESH"), m.If(over):
                m.d.comb += done.eq(self.ready)
                m.d.sync += begun.eq(begun + 1)
                with m.If(self.ready | (begun == REFRESHES - 1)):
                    then(Command.REFRESH, timing.rfc, "MODE")
                with m.Else():
                    then(Command.REFRESH, timing.rfc, "REFRESH")
            with m.State("MODE"), m.If(over):
                with m.If(self.ready):
                    m.d.sync += self.working.eq(0)
                    m.next = "RUN"
                with m.Else():
                    then(Command.MODE, timing.mrd, "RUN")
                    m.d.sync += self.ready.eq(1)
            with m.State("RUN"):
                with m.If(over):
                    m.d.sync += [self.working.eq(0), begun.eq(0)]
                with m.If(~self.working & self.wanted & self.quiet):
                    m.d.sync += self.working.eq(1)
                    m.next = "CLOSE"
