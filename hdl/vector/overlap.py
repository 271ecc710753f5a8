"""Two commands of the vector engine at once: one is read while the other is still written."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import DEFINITIONS, Engine, Opcode
from hdl.component import Component
from hdl.ports import command_layout
from hdl.stream.pipeline import delay


class Overlap(Component):
    """Keeps a SOFTMAX that is ``followed`` while the next command is read.

    ``i`` is the command at the engine's door, and ``o`` the one that the back end works for: the
    same, or while ``behind`` is 1 the one that was at the door before. ``begun`` tells that the
    front end has started the command at the door, ``read`` that it has taken its last beat, and
    ``written`` that the back end has written the last beat of ``o``. ``early`` asks for the next
    command while ``o`` is still to be written, with ``registered`` a cycle behind ``read``;
    ``follows`` tells that the command at the door may start then. ``start`` starts the back end:
    with ``begun``, or as soon as nothing is behind, with ``registered`` a cycle later, when what is
    at the door is decoded.
    Without ``fused`` there is never anything behind.
    """

    def __init__(self, config: Config):
        self.config = config
        commands = command_layout(Engine.VECTOR)
        super().__init__(
            {
                "i": In(commands),
                "begun": In(1),
                "read": In(1),
                "written": In(1),
                "o": Out(commands),
                "behind": Out(1),
                "early": Out(1),
                "follows": Out(1),
                "start": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        if not self.config.fused or not self.config.softmax:
            m.d.comb += [self.o.eq(self.i), self.start.eq(self.begun)]
            return m
        definition = DEFINITIONS[Opcode.SOFTMAX]
        kept = Signal.like(self.i, reset_less=True)
        softmax = self.i.opcode == Opcode.SOFTMAX
        # The front end is done, but the back end has not begun: it is still behind.
        waiting, owed = Signal(), Signal()
        followed = softmax & self.i.flags[definition.flag_bit("followed")]
        # A front end that begins as this one ends finds what it needs decoded.
        busy = self.behind
        registered = self.config.registered
        if registered:
            busy |= delay(m, busy, 1, reset=True)
        m.d.comb += [
            self.o.eq(Mux(self.behind, kept, self.i)),
            self.follows.eq(softmax & self.i.flags[definition.flag_bit("drain")]),
            self.early.eq((waiting if registered else self.read | waiting) & followed & ~owed),
            self.start.eq((self.begun | owed) & ~busy),
        ]
        m.d.sync += [
            waiting.eq((self.read | waiting) & followed & ~self.early),
            owed.eq((self.begun | owed) & busy),
        ]
        with m.If(self.early):
            m.d.sync += [kept.eq(self.i), self.behind.eq(1)]
        with m.Elif(self.written):
            m.d.sync += self.behind.eq(0)
        return m
