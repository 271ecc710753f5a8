"""Overlap of two vector commands: one command writes its output while the next reads its input."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Decides when a vector command may begin before the previous one has written its results.

    - ``i``: the first command in the engine's queue.
    - ``early``: 1 if the engine must remove ``i`` from its queue before the results are written.
    - ``behind``: 1 from the next cycle until the results of the removed command are written.
    - ``o``: the removed command while ``behind`` is 1, otherwise ``i``.
    - ``follows``: 1 if ``i`` may begin while ``behind`` is 1.
    - ``written``: must be 1 at the last write of a command.
    """

    read: Signal
    """1 when the last row of accumulators is requested."""
    reading: Signal
    """1 while the second operand is not requested completely."""
    owes: Signal
    """1 until all units of the engine have begun the command."""

    def __init__(self, *, stages: int, fused: bool):
        commands = command_layout(Engine.VECTOR)
        super().__init__(
            {
                "i": In(commands),
                "read": In(1),  # the last row of accumulators is requested
                "reading": In(1),  # the second operand is not all requested
                "owes": In(1),  # a unit of the engine has not begun the command
                "written": In(1),  # the last write
                "o": Out(commands),
                "behind": Out(1),
                "early": Out(1),
                "follows": Out(1),
            }
        )

    def circuit(self, m):
        if not self.fused:
            m.d.comb += self.o.eq(self.i)
            return
        kept = Signal.like(self.i, reset_less=True)
        followed = self.i.flags[DEFINITIONS[Opcode.DRAIN].flag_bit("followed")]
        # It has been read, but the previous command is still written, or the back end has not begun
        # it: only one command at a time may be behind.
        waiting = Signal()
        # 0 cycles and 1 cycle behind it.
        read = (self.read | waiting, waiting)[self.stages]
        ended = self.written & ~self.behind
        m.d.comb += [
            self.o.eq(Mux(self.behind, kept, self.i)),
            self.follows.eq(self.i.opcode == kept.opcode),
            self.early.eq(
                read & followed & ~self.reading & ~self.owes & ~self.behind & ~self.written
            ),
        ]
        m.d.sync += waiting.eq((self.read | waiting) & followed & ~self.early & ~ended)
        # Load until a command is behind another: no other condition enables this many registers.
        with m.If(~self.behind):
            m.d.sync += kept.eq(self.i)
        with m.If(self.early):
            m.d.sync += self.behind.eq(1)
        with m.Elif(self.written):
            m.d.sync += self.behind.eq(0)
