"""Recovery: brings the core from any state to one in which a run can begin."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

FLUSH = 32
"""Reset time of the core (cycles): longer than any pipeline whose registers have no reset. It is
also the least number of ``scrub`` cycles: more than the registers that are written one by one."""


class Recovery(Component):
    """Cuts the core off from external memory, resets it, clears memories, and awaits late answers.

    It does all of this after ``abort``, and all but the first step after reset. ``close``,
    ``closed`` and ``owed`` are those of :class:`celosia.hdl.memory.guard.MemoryGuard`. ``clear``
    resets the core for ``FLUSH`` cycles. With ``scrub``, ``scrub_addr`` then counts through
    ``depth`` addresses, at least ``FLUSH``. ``idle`` is 1 when a run may begin:
    ``FLUSH + depth + 3`` cycles after ``abort`` if the memory owes no answers.
    """

    def __init__(self, depth: int):
        self.depth = max(depth, FLUSH)
        super().__init__(
            {
                "abort": In(1),
                "closed": In(1),
                "owed": In(1),
                "close": Out(1),
                "clear": Out(1, init=1),
                "scrub": Out(1),
                "scrub_addr": Out(range(self.depth)),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        count = self.scrub_addr
        m.d.comb += self.close.eq(1)
        with m.FSM(init="CLEAR"):
            with m.State("IDLE"):
                m.d.comb += [self.close.eq(0), self.idle.eq(~self.abort)]
                with m.If(self.abort):
                    m.next = "CLOSE"
            with m.State("CLOSE"), m.If(self.closed):
                # Registered, because the reset reaches all of the core.
                m.d.sync += self.clear.eq(1)
                m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.sync += count.eq(count + 1)
                with m.If(count == FLUSH - 1):
                    m.d.sync += [count.eq(0), self.clear.eq(0)]
                    m.next = "SCRUB"
            with m.State("SCRUB"):
                m.d.comb += self.scrub.eq(1)
                m.d.sync += count.eq(count + 1)
                with m.If(count == self.depth - 1):
                    m.d.sync += count.eq(0)
                    m.next = "DRAIN"
            with m.State("DRAIN"), m.If(~self.owed):
                m.next = "IDLE"
        return m


class Watchdog(Component):
    """Reports each bit of ``watched`` that has been 1 for too long.

    ``expired`` is 1 for one cycle if ``watched`` was 1 for the last ``cycles`` cycles, after at
    most ``2 * cycles`` cycles; never if ``cycles`` is 0.
    """

    def __init__(self, width: int, cycles: int):
        self.width = width
        self.cycles = cycles
        super().__init__({"watched": In(width), "expired": Out(width)})

    def elaborate(self, _platform):
        m = Module()
        if not self.cycles:
            return m
        timer = Signal(range(max(2, self.cycles)))
        tick = Signal()
        since = Signal(self.width)  # since the tick before the last
        m.d.comb += [
            tick.eq(timer == self.cycles - 1),
            self.expired.eq(since & self.watched & tick.replicate(self.width)),
        ]
        m.d.sync += [
            timer.eq(timer + 1),
            since.eq(self.watched & (since | tick.replicate(self.width)) & ~self.expired),
        ]
        with m.If(tick):
            m.d.sync += timer.eq(0)
        return m
