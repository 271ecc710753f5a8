"""Counts the cycles from the first to the last active cycle of an activity, pauses included."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

PAUSE_WIDTH = 16
"""Width of the number of cycles in the longest pause that is counted in full (bits)."""


class Span(Component):
    """Computes increments for a counter of the cycles from an activity's first cycle to its last.

    The counter also includes pauses: cycles between the first and the last in which ``active`` is
    0. ``grows`` is the number to add to the counter in a cycle. It is 0 if ``active`` is 0,
    otherwise 1 plus the length (cycles) of the pause that ended with this cycle. A pause counts as
    at most ``2**PAUSE_WIDTH - 1`` cycles. ``clear`` begins a new activity; cycles before its first
    active cycle are not counted. ``grows`` depends combinationally on ``active``.
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
