"""The hardware loops of the sequencer."""

from itertools import pairwise

from amaranth.hdl import Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH, LOOP_LEVELS
from celosia.hdl.component import Component


class Loops(Component):
    """Stores the address and the remaining iterations of up to ``LOOP_LEVELS`` nested loops.

    ``enter`` opens a loop of ``count`` iterations, at least 1, whose first word has the address
    ``pc``. ``turn`` ends an iteration of the innermost loop: if ``again`` is 1, a further iteration
    begins at word ``start``, otherwise the loop closes. ``clear`` closes all loops.
    """

    empty: Signal
    """1 while no loop is open; ``turn`` must then be 0."""
    full: Signal
    """1 while ``LOOP_LEVELS`` loops are open; ``enter`` must then be 0."""

    def __init__(self, addr_width: int):
        super().__init__(
            {
                "clear": In(1),
                "enter": In(1),
                "turn": In(1),
                "pc": In(addr_width),
                "count": In(COUNT_WIDTH),
                "start": Out(addr_width),
                "again": Out(1),
                "full": Out(1),
                "empty": Out(1),
            }
        )

    def circuit(self, m):
        layout = data.StructLayout(
            {"start": self.addr_width, "left": COUNT_WIDTH, "again": 1, "used": 1}
        )
        # The innermost loop is first; the others shift up and down after it.
        loops = [Signal(layout, name=f"loop_{level}") for level in range(LOOP_LEVELS)]
        inner = loops[0]
        m.d.comb += [
            self.start.eq(inner.start),
            self.again.eq(inner.again),
            self.full.eq(loops[-1].used),
            self.empty.eq(~inner.used),
        ]
        with m.If(self.enter):
            m.d.sync += [here.eq(above) for above, here in pairwise(loops)]
            m.d.sync += [
                inner.start.eq(self.pc),
                inner.left.eq(self.count),
                inner.again.eq(self.count != 1),
                inner.used.eq(1),
            ]
        with m.Elif(self.turn & self.again):
            m.d.sync += [inner.left.eq(inner.left - 1), inner.again.eq(inner.left != 2)]
        with m.Elif(self.turn):
            m.d.sync += [here.eq(below) for here, below in pairwise(loops)]
            m.d.sync += loops[-1].used.eq(0)
        with m.If(self.clear):
            m.d.sync += [loop.used.eq(0) for loop in loops]
