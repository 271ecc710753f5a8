"""Recovery: resets the core from any state to a state in which a run can begin."""

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

FLUSH = 32
"""Length of the core's reset (cycles): longer than any pipeline whose registers have no reset. It
is also the least number of ``scrub`` cycles, more than the number of registers scrubbed in turn."""


class Recovery(Component):
    """Resets the core and clears its memories, after ``abort`` and after a reset of the machine.

    ``depth`` is the number of words of the deepest memory; fewer than ``FLUSH`` words count as
    ``FLUSH``. ``idle`` is 1 if a run may begin. If no memory transfer is outstanding, ``idle``
    becomes 1 ``FLUSH + depth + 3`` cycles after ``abort``.
    """

    abort: Signal
    """1 to reset the core and clear its memories."""
    close: Signal
    """1 to request the isolation of the core from external memory."""
    closed: Signal
    """1 once the core is isolated."""
    clear: Signal
    """1 for ``FLUSH`` cycles, which reset the core."""
    owed: Signal
    """1 while external memory owes answers."""
    scrub: Signal
    """1 for ``depth`` cycles, in which memories clear word ``scrub_addr``."""
    scrub_addr: Signal
    """The word to clear."""

    def __init__(self, depth: int):
        self.depth = max(depth, FLUSH)
        super().__init__(
            {
                "abort": In(1),
                "closed": In(1),  # the core is isolated from external memory
                "owed": In(1),  # external memory has answers to give
                "close": Out(1),  # isolate the core
                "clear": Out(1, init=1),  # reset the core
                "scrub": Out(1),  # each memory clears its word scrub_addr
                "scrub_addr": Out(range(self.depth)),
                "idle": Out(1),
            }
        )

    def circuit(self, m):
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


class Watchdog(Component):
    """Reports each bit of ``watched`` that has been 1 for at least ``cycles`` cycles.

    If bit i of ``watched`` is reported, bit i of ``expired`` is 1 for one cycle. This cycle is at
    most ``2 * cycles`` cycles after bit i of ``watched`` became 1. If ``cycles`` is 0, nothing is
    reported.
    """

    def __init__(self, width: int, cycles: int):
        super().__init__({"watched": In(width), "expired": Out(width)})

    def circuit(self, m):
        if not self.cycles:
            return
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
