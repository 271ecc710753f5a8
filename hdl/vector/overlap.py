"""Overlap of two vector commands: one command writes its output while the next reads its input."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Lets the vector engine begin a command while the results of the previous command are written.

    The input ``i`` is the first command in the engine's queue, whose input the engine reads. The
    output ``o`` is the command whose results the engine writes. Usually ``o`` is the same command
    as ``i``. During an overlap, ``o`` is a stored command, and ``i`` is the next command. The
    output ``behind`` is 1 during an overlap.

    The output ``early`` is 1 in the cycle in which an overlap begins. In this cycle the engine must
    remove command ``i`` from its queue. From the next cycle on, the command is stored and
    ``behind`` is 1, until the command's last write. While ``behind`` is 1, the engine must start
    command ``i`` only if the output ``follows`` is 1. ``follows`` is 1 if ``i`` has the opcode of
    the stored command.

    ``early`` is 1 if ``fused`` is true and all of these conditions are met:

    - ``i`` has the flag ``followed``, which permits an overlap.
    - ``i`` has requested its last row of accumulators. The input ``read`` is 1 in the cycle of this
      request. If ``stages`` is 0, ``early`` can be 1 in this cycle or later. If ``stages`` is 1, it
      can be 1 from the next cycle on.
    - ``i`` has no requests of its second operand left: the input ``reading`` is 0.
    - All units of the engine have begun ``i``: the input ``owes`` is 0.
    - There is no overlap yet: ``behind`` is 0.
    - ``i`` does not end in this cycle: the input ``written`` is 0. ``written`` is 1 in the cycle of
      the last write of command ``o``.
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
