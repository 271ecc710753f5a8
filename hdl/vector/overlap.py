"""Overlap of two vector commands: one command writes its output while the next reads its input."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Stores a vector command until its results are written, while the next command begins.

    The output ``o`` is the command whose results the vector engine writes. The input ``i`` is the
    command whose input the engine reads. Usually they are the same command. If the output
    ``behind`` is 1, two commands overlap: ``o`` is a stored command, which came before ``i``.

    Two outputs control the engine:

    - ``early``: the engine must accept command ``i`` in this cycle, before its results are written.
      The command is then stored, and ``behind`` is 1 from the next cycle until its last write.
    - ``follows``: command ``i`` has the opcode of the stored command. While ``behind`` is 1,
      command ``i`` may start only if ``follows`` is 1.

    ``early`` is 1 if ``fused`` is true and all of these conditions are met:

    - Command ``i`` has the flag ``followed``, which permits the next command to begin early.
    - Command ``i`` has requested its last row of accumulators: the input ``read`` is 1 in the cycle
      of this request. ``early`` follows at least ``stages`` (0 or 1) cycles after ``read``.
    - Command ``i`` has no requests of its second operand left: the input ``reading`` is 0.
    - All units of the engine have begun command ``i``: the input ``owes`` is 0.
    - No earlier command is stored: ``behind`` is 0.
    - Command ``i`` does not end in this cycle: the input ``written`` is 0. ``written`` is 1 in the
      cycle in which the last beat of command ``o`` is written.
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
