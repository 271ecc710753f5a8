"""The length of an activity, from its first to its last cycle, pauses included."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

PAUSE_WIDTH = 16
"""Width of the longest pause that counts in full (bits)."""


class Span(Component):
    """Counts the cycles of an activity from its first to its last one, pauses included.

    ``grows`` is the increment of the counter. In each cycle with ``active`` it is 1 plus the length
    of the pause before it; a pause longer than 2**PAUSE_WIDTH - 1 cycles counts as that number.
    ``clear`` forgets earlier activity. ``grows`` is combinational from ``active``.
    """

    def __init__(self) -> None:
        super().__init__({"active": In(1), "clear": In(1), "grows": Out(PAUSE_WIDTH + 1)})

    def elaborate(self, _platform):
        m = Module()
        begun = Signal()
        pause = Signal(PAUSE_WIDTH)
        m.d.comb += self.grows.eq(Mux(self.active, pause + 1, 0))
        with m.If(self.active):
            m.d.sync += [begun.eq(1), pause.eq(0)]
        with m.Elif(begun & ~pause.all()):
            m.d.sync += pause.eq(pause + 1)
        with m.If(self.clear):
            m.d.sync += [begun.eq(0), pause.eq(0)]
        return m
