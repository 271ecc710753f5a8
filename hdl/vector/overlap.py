"""Overlap of two vector commands: one command writes its output while the next reads its input."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Decides when a vector command may begin before the previous command's results are written.

    ``i`` is the first command in the queue of the vector engine. ``o`` is the command with results
    that the engine writes. Two commands A and B overlap in these steps:

    1. The engine runs A. ``i`` and ``o`` are A.
    2. ``early`` is 1 for one cycle. The engine must remove A from the queue in this cycle. This
       unit stores A.
    3. ``behind`` is 1: the commands may overlap. ``o`` is A, and ``i`` is B. The engine may begin B
       only if ``follows`` is 1, that is, if B has the same opcode as A.
    4. ``written`` must be 1 in the cycle of A's last write. From the next cycle on, ``behind`` is
       0, and ``i`` and ``o`` are B.

    ``early`` is 1 only if the argument ``fused`` is true, ``behind`` is 0 and command ``i`` has the
    flag ``followed``. The other inputs must report the progress of command ``i``. ``early`` is 1 in
    the first cycle in which all of these conditions are met:

    - ``read`` has been 1: the last row of accumulators is requested. The current cycle counts if
      ``stages`` is 0; only earlier cycles count if ``stages`` is 1.
    - ``reading`` is 0: all of the second operand is requested.
    - ``owes`` is 0: all units of the engine have begun the command.
    - ``written`` is 0: the last write is not in this cycle.
    """

    def __init__(self, *, stages: int, fused: bool):
        commands = command_layout(Engine.VECTOR)
        super().__init__(
            {
                "i": In(commands),
                "read": In(1),
                "reading": In(1),
                "owes": In(1),
                "written": In(1),
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
