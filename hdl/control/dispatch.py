"""Queues of the engines' commands, and the dependency tokens between engines."""

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect

from celosia.arch.isa import DEFINITIONS, FLAG_SHIFT, IMMEDIATE_WIDTH, MAX_TOKENS, MAX_WORDS, Engine
from celosia.arch.latency import queue_latency
from celosia.arch.records import Control
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import error_port, gather
from celosia.hdl.ports import WORD, command_layout
from celosia.hdl.stream.pipeline import KEPT, data_register, delay
from celosia.hdl.stream.slice import RegisterSlice

STORED = 48
"""Largest width of a memory of queued commands, because wide memories spread over a device (bits).
"""
TOKEN_WIDTH = MAX_TOKENS.bit_length()
"""Width of a token count (bits)."""


def _parity(word: Value) -> Value:
    """Return the parity of each half of a word; one parity of all bits would be too slow."""
    middle = len(word) // 2
    return Cat(word[:middle].xor(), word[middle:].xor())


class CommandQueue(Component):
    """Assembles commands of ``engine`` from program words, and queues up to ``depth`` of them.

    ``i`` receives the words. A command is on ``o`` at least ``latency`` cycles after its last word.
    Operands that the command's opcode does not have are undefined. ``busy`` is 1 while a word or
    command is queued. ``wrong`` is 1 in the cycle after a command with wrong parity on ``o``.
    """

    stages = 0
    """Cycles from the departure of a command to the change of the queue's counters."""

    def __init__(self, engine: Engine, depth: int, *, parity: bool = False):
        self.latency = queue_latency(depth)
        self.stored = depth > 2
        self._parity = parity
        command = data.StructLayout({"pop": len(Engine), "command": command_layout(engine)})
        super().__init__(
            {
                "i": In(stream.Signature(WORD)),
                "o": Out(stream.Signature(command)),
                "busy": Out(1),
                **({"wrong": Out(1)} if parity else {}),
            }
        )

    def circuit(self, m):
        layout = self.o.p.shape()
        names = list(command_layout(self.engine).members)[3:]
        if self._parity:
            bits = data.StructLayout(dict.fromkeys(["header", *names], 2))
            layout = data.StructLayout(dict(layout.members) | {"parity": bits})
        command = Signal(layout, reset_less=True)
        complete, taken = Signal(), Signal()
        index = Signal(range(MAX_WORDS))
        partial = Signal()
        with m.If(taken):
            m.d.sync += complete.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                complete.eq(self.i.p.last),
                partial.eq(~self.i.p.last),
                index.eq(Mux(self.i.p.first, 0, index + 1)),
            ]
            with m.If(self.i.p.first):
                header = self.i.p.word
                m.d.sync += [
                    command.pop.eq(header[5:9]),
                    command.command.push.eq(header[9:13]),
                    command.command.opcode.eq(header[:5]),
                    command.command.flags.eq(header[FLAG_SHIFT:]),
                ]
                if self._parity:
                    given = Cat(header[:13], header[FLAG_SHIFT : FLAG_SHIFT + 16])
                    m.d.sync += command.parity.header.eq(_parity(given))
            with m.Elif(not self.stages):
                self._operand(m, command, index)
        self._next_operands(m, command, index)

        # A command moves towards the output as far as there is room. A departure, which is known
        # late in the cycle, makes room for further words only in the next cycle.
        full = [complete]
        m.d.comb += self.i.ready.eq(~complete)
        valid, payload, moved = complete, command, taken
        if self.stored:
            valid, payload, moved = self._stored(m, complete, command, taken)
            full.append(valid)
        elif self.depth == 2:
            held = Signal.like(command, name="held_1", reset_less=True)
            waiting, leaves = Signal(name="waiting_1"), Signal(name="leaves_1")
            m.d.comb += moved.eq(valid & (~waiting | (leaves & (not self.stages))))
            m.d.comb += self.i.ready.eq(~complete | ~waiting)
            with m.If(moved):
                m.d.sync += [held.eq(payload), waiting.eq(1)]
            with m.Elif(leaves):
                m.d.sync += waiting.eq(0)
            full.append(waiting)
            valid, payload, moved = waiting, held, leaves
        m.d.comb += [
            self.o.p.eq(Cat(payload.pop, payload.command) if self._parity else payload),
            self.o.valid.eq(valid),
            moved.eq(valid & self.o.ready),
            self.busy.eq(partial | Cat(full).any()),
        ]
        if self._parity:
            given = payload.command
            header = Cat(given.opcode, payload.pop, given.push, given.flags)
            wrong = [_parity(header) ^ payload.parity.header]
            wrong += [_parity(given[name].as_unsigned()) ^ payload.parity[name] for name in names]
            # Each check has a register: checking a whole command takes too long for one cycle.
            wrong = [delay(m, bits & valid.replicate(2), 1, reset=True) for bits in wrong]
            m.d.comb += self.wrong.eq(Cat(wrong).any())

    def _stored(self, m, complete, command, taken):
        """Queue commands in a memory; return whether it has one, the first, and a departure bit.

        ``taken`` is set if a ``complete`` command enters the memory.
        """
        # One place more than is used: commands that are not accepted are written too, so that the
        # wide memory's write enable depends on nothing.
        places, bits = self.depth, Value.cast(command)
        level, some, leaves = Signal(range(places)), Signal(), Signal()
        after = Signal.like(level)
        m.d.comb += [
            taken.eq(complete & (level != places - 1)),
            self.i.ready.eq(~complete | taken),
            after.eq(level + taken - leaves),
        ]
        m.d.sync += [level.eq(after), some.eq(after != 0)]
        late = delay(m, leaves, self.stages, reset=True)
        found = []
        for first in range(0, len(bits), STORED):
            part = bits[first : first + STORED]
            memory = Memory(shape=len(part), depth=places, init=[])
            m.submodules[f"commands_{first}"] = memory
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [write.en.eq(1), write.data.eq(part)]
            for port, moves in ((write, taken), (read, late)):
                place = Signal.like(port.addr, attrs=dict(KEPT))
                m.d.comb += port.addr.eq(place)
                with m.If(moves):
                    m.d.sync += place.eq(Mux(place == places - 1, 0, place + 1))
            found.append(read.data)
        return some, data.View(command.shape(), Cat(found)), leaves

    def _take(self, m, command, name):
        """Store an incoming word as an operand."""
        m.d.sync += command.command[name].eq(self.i.p.word)
        if self._parity:
            m.d.sync += command.parity[name].eq(_parity(self.i.p.word[:IMMEDIATE_WIDTH]))

    def _operand(self, m, command, index):
        """Write the field at this position of the instruction."""
        for definition in DEFINITIONS.values():
            if definition.engine == self.engine:
                with m.If(command.command.opcode == definition.opcode):
                    for place, name in enumerate(definition.operands):
                        with m.If(index == place):
                            self._take(m, command, name)

    def _next_operands(self, m, command, index):
        """Write operands whose field was known before they arrived: none in this queue."""


class StagedCommandQueue(CommandQueue):
    """A :class:`CommandQueue` with shorter timing paths, for machines with option ``registered``.

    In the cycle after a command has left on ``o``, ``o`` may offer the same command again. In this
    cycle the receiver must not accept a command.
    """

    stages = 1

    def _next_operands(self, m, command, index):
        """Give each field a register that is 1 if the next operand is its own."""
        first = self.i.p.first
        fields: dict[str, list[Value]] = {}
        for definition in DEFINITIONS.values():
            if definition.engine == self.engine:
                ahead = first & (self.i.p.word[:5] == definition.opcode)
                behind = ~first & (command.command.opcode == definition.opcode)
                for place, name in enumerate(definition.operands):
                    known = behind & (index == place - 1) if place else ahead
                    fields.setdefault(name, []).append(known)
        for name, known in fields.items():
            own = Signal(name=f"next_{name}")
            # Words without room are headers, and change no operand.
            with m.If(self.i.valid):
                m.d.sync += own.eq(Cat(known).any())
                with m.If(own & ~first):
                    self._take(m, command, name)


class _DirectGrant:
    """A command goes to its engine in the cycle in which its tokens are available."""

    queue = CommandQueue

    def tokens(self, m, some, pushed):
        """Return the available tokens by source and sink, and the strobes that count new ones."""
        return some, pushed

    def late(self, m, accepted):
        """Return 1 if the tokens of an accepted command are not subtracted yet."""
        return Const(0, 1)

    def grant(self, m, queue, out, granted, accepted):
        """Connect a queue's commands to ``out`` in cycles with ``granted``."""
        m.d.comb += [
            out.p.eq(queue.o.p.command),
            out.valid.eq(queue.o.valid & granted),
            queue.o.ready.eq(out.ready & granted),
        ]

    def count(self, m, name, under_way, accepted, done, late_taken):
        """Count the unfinished commands; return strobes that are 1 while there are any."""
        m.d.sync += under_way.eq(under_way + accepted - done)
        return [under_way != 0]


class _StagedGrant(_DirectGrant):
    """A command consumes its tokens and moves to a register in front of its engine.

    It does so one cycle before the engine can accept it, and one cycle after the previous command
    was accepted. The start of an engine then depends on registers only. Tokens of the matrix
    engine, whose ``done`` is a register, are usable at once, other tokens one cycle later. Tokens
    are counted one cycle later.
    """

    queue = StagedCommandQueue

    def tokens(self, m, some, pushed):
        # One cycle later: the next command takes tokens at least two cycles after one.
        late = {pair: delay(m, strobe, 1, reset=True) for pair, strobe in pushed.items()}
        available = {
            (source, sink): held
            | late[source, sink]
            | (pushed[source, sink] if source == Engine.MATRIX else 0)
            for (source, sink), held in some.items()
        }
        return available, late

    def late(self, m, accepted):
        return delay(m, accepted, 1, reset=True)

    def grant(self, m, queue, out, granted, accepted):
        m.d.comb += queue.o.ready.eq(~out.valid & granted)
        command = data_register(m, out.p)
        # Tokens control `valid` only, not the enable of many registers. If commands come from a
        # memory, the presence of a command does not control it either.
        with m.If(~out.valid & (1 if queue.stored else queue.o.valid)):
            m.d.sync += command.eq(queue.o.p.command)
        with m.If(accepted):
            m.d.sync += out.valid.eq(1)
        with m.Elif(out.ready):
            m.d.sync += out.valid.eq(0)

    def count(self, m, name, under_way, accepted, done, late_taken):
        # A grant of the previous cycle is counted in this one.
        late_done = delay(m, done, 1, reset=True)
        after = Signal.like(under_way, name=f"under_way_next_{name}")
        some_under_way = Signal(name=f"some_under_way_{name}")
        m.d.comb += after.eq(under_way + late_taken - late_done)
        m.d.sync += [under_way.eq(after), some_under_way.eq(after != 0)]
        return [some_under_way, late_taken]


_GRANTS = (_DirectGrant, _StagedGrant)
"""Circuits that grant commands to engines, by a configuration's ``stages`` (0 or 1)."""


class Dispatch(Component):
    """Queues the commands of each engine; issues a command when its dependency tokens have arrived.

    A token reports to one engine that another engine has completed a command. ``i`` receives the
    words of the sequencer, and ``o_NAME`` issues commands to engine NAME. A command consumes a
    token from each engine in its pop mask. ``done_NAME`` is 1 when engine NAME completes a command;
    each engine in the mask ``push_NAME`` then receives a token. ``lacking_NAME`` is the mask of
    engines whose tokens a command lacks; ``waiting_NAME`` is 1 if it lacks any. ``idle`` is 1 if
    all commands have completed. ``overflow`` is 1 after more than 255 unused tokens of two engines.
    ``clear`` removes all tokens.
    """

    def __init__(self, control: Control):
        members = {
            "i": In(stream.Signature(WORD)),
            "clear": In(1),
            "idle": Out(1),
            "overflow": Out(1),
        }
        for engine in Engine:
            name = engine.name.lower()
            members[f"o_{name}"] = Out(stream.Signature(command_layout(engine)))
            members[f"done_{name}"] = In(1)
            members[f"push_{name}"] = In(len(Engine))
            members[f"waiting_{name}"] = Out(1)
            members[f"lacking_{name}"] = Out(len(Engine))
        members |= error_port(control.protected("queues"))
        super().__init__(members)

    def circuit(self, m):
        tokens = {
            (source, sink): Signal(TOKEN_WIDTH, name=f"tokens_{source.name}_{sink.name}".lower())
            for source in Engine
            for sink in Engine
            if source != sink
        }
        # Whether there are any tokens, separate from their number: commands wait for it.
        some = {
            (source, sink): Signal(name=f"some_{source.name}_{sink.name}".lower())
            for source, sink in tokens
        }
        pushed = {
            (source, sink): getattr(self, f"done_{source.name}".lower())
            & getattr(self, f"push_{source.name}".lower())[sink]
            for source, sink in tokens
        }
        stages = self.control.stages
        grants = _GRANTS[stages]()
        available, pushed = grants.tokens(m, some, pushed)
        pops, busy, wrong = {}, [], []
        for engine in Engine:
            name = engine.name.lower()
            out, done = getattr(self, f"o_{name}"), getattr(self, f"done_{name}")
            parity = self.control.protected("queues") != "none"
            queue = grants.queue(engine, self.control.queue_depth, parity=parity)
            wrong += [Cat(Const(0, 1), queue.wrong)] if parity else []
            m.submodules[f"queue_{name}"] = queue
            words = queue.i
            for _ in range(stages):
                m.submodules[f"words_{name}"] = near = RegisterSlice(WORD)
                connect(m, near.o, words)
                words = near.i
                busy.append(near.o.valid)
            m.d.comb += [words.p.eq(self.i.p), words.valid.eq(0)]
            with m.If(self.i.p.engine == engine):
                m.d.comb += [words.valid.eq(self.i.valid), self.i.ready.eq(words.ready)]
            lacks = Cat(
                Const(0, 1)
                if source == engine
                else queue.o.p.pop[source] & ~available[source, engine]
                for source in Engine
            )
            granted = ~lacks.any()
            lacking = getattr(self, f"lacking_{name}")
            taken = queue.o.valid & queue.o.ready
            late_taken = grants.late(m, taken)
            known = ~late_taken
            m.d.comb += [
                lacking.eq(Mux(queue.o.valid & known, lacks, 0)),
                getattr(self, f"waiting_{name}").eq(lacking.any()),
            ]
            grants.grant(m, queue, out, granted, taken)
            under_way = Signal(8, name=f"under_way_{name}")
            busy += [*grants.count(m, name, under_way, taken, done, late_taken), queue.busy]
            pops[engine] = [taken & queue.o.p.pop[source] for source in Engine]
        m.d.comb += self.idle.eq(~Cat(busy).any() & ~self.i.valid)

        for (source, sink), count in tokens.items():
            up, down = pushed[source, sink], pops[sink][source]
            down = delay(m, down, stages, reset=True)
            after = Signal.like(count, name=f"after_{source.name}_{sink.name}".lower())
            m.d.comb += after.eq(count + up - down)
            m.d.sync += [count.eq(after), some[source, sink].eq(after != 0)]
            with m.If(up & ~down & (count == MAX_TOKENS)):
                m.d.sync += self.overflow.eq(1)
        gather(m, self, wrong)
        with m.If(self.clear):
            m.d.sync += self.overflow.eq(0)
            m.d.sync += [held.eq(0) for held in (*tokens.values(), *some.values())]
