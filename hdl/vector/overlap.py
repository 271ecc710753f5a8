"""Two commands of the vector engine at once: one is read while the other is still written."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout


class Overlap(Component):
    """Keeps a command that is ``followed`` while the next one is read.

    ``i`` is the command at the engine's door, and ``o`` the one that the back end works for: the
    same, or while ``behind`` is 1 the one that was at the door before. ``read`` tells that
    the last row of accumulators is asked for by the command at the door, ``reading`` that it still
    asks for its second input, ``owes`` that what comes behind has not begun it, and ``written``
    that the last beat of ``o`` is written. ``early`` asks for the next command while ``o`` is still
    to be written, with ``registered`` a cycle behind ``read`` at the earliest; ``follows`` tells
    that the command at the door may start then.
    Without ``fused`` there is never anything behind.
    """

    def __init__(self, config: Config):
        self.config = config
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

    def elaborate(self, _platform):
        m = Module()
        if not self.config.fused:
            m.d.comb += self.o.eq(self.i)
            return m
        kept = Signal.like(self.i, reset_less=True)
        followed = self.i.flags[DEFINITIONS[Opcode.DRAIN].flag_bit("followed")]
        # It is read, but the command before is written, or the back end has not begun: one at a
        # time is behind.
        waiting = Signal()
        read = waiting if self.config.control.registered else self.read | waiting
        ended = self.written & ~self.behind
        m.d.comb += [
            self.o.eq(Mux(self.behind, kept, self.i)),
            self.follows.eq(self.i.opcode == kept.opcode),
            self.early.eq(
                read & followed & ~self.reading & ~self.owes & ~self.behind & ~self.written
            ),
        ]
        m.d.sync += waiting.eq((self.read | waiting) & followed & ~self.early & ~ended)
        # Until a command is behind another, whichever is at the door: nothing else decides about so
        # many registers.
        with m.If(~self.behind):
            m.d.sync += kept.eq(self.i)
        with m.If(self.early):
            m.d.sync += self.behind.eq(1)
        with m.Elif(self.written):
            m.d.sync += self.behind.eq(0)
        return m
