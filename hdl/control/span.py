"""Counts the cycles from the first to the last active cycle of an activity, pauses included."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

PAUSE_WIDTH = 16
"""Width of the number of cycles in the longest pause that is counted in full (bits)."""


class Span(Component):
    """Computes the increments of a counter that measures an activity in cycles, pauses included.

    ``grows`` is the increment in this cycle, 0 while ``active`` is 0. Otherwise, the increment is 1
    plus the length (cycles) of the pause that ended just before. A pause counts as at most
    ``2**PAUSE_WIDTH - 1`` cycles. ``grows`` is combinational. ``clear`` begins a new activity.
    """

    def __init__(self) -> None:
        super().__init__({"active": In(1), "clear": In(1), "grows": Out(PAUSE_WIDTH + 1)})

    def circuit(self, m):
        begun = Signal()
        pause = Signal(PAUSE_WIDTH)
        m.d.comb += self.grows.eq(Mux(self.active, pause + 1, 0))
        with m.If(self.active):
            m.d.sync += [begun.eq(1), pause.eq(0)]
        with m.Elif(begun & ~pause.all()):
            m.d.sync += pause.eq(pause + 1)
        with m.If(self.clear):
            m.d.sync += [begun.eq(0), pause.eq(0)]
