"""Overlap of two vector commands: one command writes its output while the next reads its input."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Stores a vector command until its results are written, while the next command begins.

    ``i`` is the command whose input the vector engine reads. ``o`` is the command whose results the
    engine writes. If ``behind`` is 1, two commands overlap: ``o`` is the stored command, which came
    before ``i``. If ``behind`` is 0, ``o`` is ``i``.

    If ``early`` is 1, the engine must accept command ``i`` in this cycle, before the results of
    ``i`` are written. The command is stored, and ``behind`` is 1 from the next cycle to the
    command's last write. ``early`` is 1 only if ``fused`` is true and the command has the flag
    ``followed``, which permits the next command to begin early. ``follows`` is 1 if command ``i``
    has the opcode of the stored command. While ``behind`` is 1, command ``i`` may start only if
    ``follows`` is 1.

    Four inputs report the progress of the commands. ``read`` is 1 in the cycle in which command
    ``i`` requests its last row of accumulators. ``reading`` is 1 while command ``i`` still requests
    its second operand. ``owes`` is 1 until all units of the engine have begun command ``i``.
    ``written`` is 1 in the cycle in which the last beat of command ``o`` is written. ``early`` is 1
    at least ``stages`` (0 or 1) cycles after ``read``.
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
