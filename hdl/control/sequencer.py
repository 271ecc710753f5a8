"""The sequencer: fetches the words of a program, executes its loops, and resolves operands."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import (
    COUNT_WIDTH,
    IMMEDIATE_WIDTH,
    MAX_WORDS,
    REGISTERS,
    WORD_WIDTH,
    Definition,
    Engine,
    Opcode,
)
from celosia.arch.protection import LEVELS
from celosia.arch.records import Control
from celosia.arch.registers import CAUSE_WIDTH, Cause
from celosia.hdl.component import Component
from celosia.hdl.control.loops import Loops
from celosia.hdl.memory.late_ram import LateRam
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_ram
from celosia.hdl.memory.ram import Ram
from celosia.hdl.ports import WORD


class Action(enum.Enum, shape=unsigned(3)):
    """The sequencer's action for a program word, such as sending the word to a command queue."""

    HALT = 0  # the content of unwritten memory
    SEND = 1
    SELECT = 2
    SET = 3
    LOOP = 4
    ENDLOOP = 5
    NOTHING = 6
    REFUSE = 7


_HEADER_ACTIONS = {
    Opcode.HALT: Action.HALT,
    Opcode.LOOP: Action.NOTHING,
    Opcode.ENDLOOP: Action.ENDLOOP,
    Opcode.SET: Action.NOTHING,
}

_OPERAND_ACTIONS = {Opcode.LOOP: Action.LOOP, Opcode.SET: Action.SELECT}
"""The effect of the first operand."""


class _Early(data.Struct):
    """The effect of a header word, and whether operands follow it."""

    action: Action
    follows: 1


EARLY_WIDTH = Shape.cast(_Early).width
"""Width of the decoded effect of a header word (bits)."""


class _DecodedOnRead:
    """A program memory of words alone: a header's effect is decoded as the word is read."""

    width = WORD_WIDTH

    def __init__(self, decode: Callable[[Module, Value], Value]):
        self._decode = decode

    def stored(self, _m: Module, word: Value) -> Value:
        """Return the bits to store for a word."""
        return word

    def read(self, m: Module, stored: Value) -> Value:
        """Return the effect as a header of a word that was stored."""
        return self._decode(m, stored)


class _DecodedOnWrite(_DecodedOnRead):
    """A program memory with a header's effect beside each word, decoded as the host writes it."""

    width = WORD_WIDTH + EARLY_WIDTH

    def stored(self, m: Module, word: Value) -> Value:
        return Cat(word, self._decode(m, word))

    def read(self, _m: Module, stored: Value) -> Value:
        return stored[WORD_WIDTH:]


_MEANINGS = (_DecodedOnRead, _DecodedOnWrite)
"""The program memory of a machine, by its ``stages``."""


class _Header(data.Struct):
    """The number of operands after a header, and the effect of the first."""

    engine: Engine
    operands: range(MAX_WORDS)
    then: Action


class _Decoded(data.Struct):
    """A word's position in its instruction, and its effect."""

    engine: Engine
    first: 1
    last: 1
    action: Action


class Sequencer(Component):
    """Executes a program: sends words of engine instructions to ``o``, runs control instructions.

    ``start`` starts the program at word ``pc``, and ``busy`` is 1 until the program ends. HALT sets
    ``halted``; the program ends as soon as ``idle`` is 1 (no engine works). ``advance`` is 1 in
    each cycle that executes a word. An operand is sent as the sum of its immediate and its
    register, modulo ``2**28``. After an invalid word, ``error`` is 1 from the second cycle until
    the next start, and ``cause`` is the reason. ``program_en`` stores ``program_data`` at word
    ``program_addr``. ``register_en`` stores ``register_data`` in register ``register_index``. If
    ``register_en`` is 0, ``scrub`` clears register 0.
    """

    def __init__(self, control: Control, instructions: Sequence[Definition]):
        addr_width = (control.program_depth - 1).bit_length()
        super().__init__(
            {
                "start": In(1),
                "pc": In(addr_width),
                "idle": In(1),
                "busy": Out(1),
                "halted": Out(1),
                "advance": Out(1),
                "error": Out(1),
                "cause": Out(CAUSE_WIDTH),
                "scrub": In(1),
                "program_en": In(1),
                "program_addr": In(addr_width),
                "program_data": In(WORD_WIDTH),
                "register_en": In(1),
                "register_index": In(range(REGISTERS)),
                "register_data": In(IMMEDIATE_WIDTH),
                "o": Out(stream.Signature(WORD)),
                **error_port(
                    max(
                        control.protected("program"), control.protected("control"), key=LEVELS.index
                    )
                ),
            }
        )

    def circuit(self, m):
        level = self.control.protected("program")
        # A word waits at its memory while the previous one waits. A header's effect is the longest
        # path after a memory, so words are corrected only once they are known to be wrong.
        late = level == "correct"
        depth = self.control.program_depth
        meaning = _MEANINGS[self.control.stages](self._early)
        width = meaning.width
        program = LateRam(width, depth) if late else protected_ram(width, depth, level, held=True)
        control = self.control.protected("control")
        registers = protected_ram(IMMEDIATE_WIDTH, REGISTERS, control, held=True)
        m.submodules.program, m.submodules.registers = program, registers
        m.submodules.loops = loops = Loops(len(self.pc))
        starting, advance = Signal(), self.advance
        m.d.comb += starting.eq(self.start & ~self.busy)

        # Fetch: pc is the address of the word that the memory shows.
        pc = Signal.like(self.pc)
        again = Signal()
        written = meaning.stored(m, self.program_data)
        m.d.comb += [
            program.write_en.eq(self.program_en),
            program.write_addr.eq(self.program_addr),
            program.write_data.eq(written),
            program.read_en.eq(advance | ~self.busy),
            program.read_addr.eq(Mux(self.busy, Mux(again, loops.start, pc + 1), self.pc)),
        ]
        after_last = Signal()
        with m.If(program.read_en):
            last = pc == self.control.program_depth - 1
            m.d.sync += [pc.eq(program.read_addr), after_last.eq(self.busy & ~again & last)]

        # First stage: there is no word after a start, nor after a loop returns to its start.
        word = Signal(WORD_WIDTH, reset_less=True)
        here = Signal(_Early, reset_less=True)
        coming = Signal(width)
        fresh = Signal()
        decides = Signal()
        outside = Signal()
        early = meaning.read(m, coming)
        m.d.comb += [coming.eq(program.read_data), decides.eq(advance)]
        with m.If(decides):
            m.d.sync += here.eq(early)
        with m.If(advance):
            m.d.sync += [
                word.eq(program.read_data),
                fresh.eq(~again),
                outside.eq(after_last),
            ]
        if late:
            m.d.comb += [program.take.eq(advance & ~again), program.taken.eq(Cat(word, here))]
            with m.If(program.repair):
                m.d.comb += [coming.eq(program.corrected), decides.eq(1)]
                m.d.sync += word.eq(coming)
        with m.If(starting):
            m.d.sync += fresh.eq(0)

        # Second stage.
        present = fresh & ~program.repair if late else fresh
        now = self._decode(m, here, word, present, starting)
        action = Signal(Action)
        m.d.comb += action.eq(Mux(outside & present, Action.REFUSE, now.action))
        # Refused: unknown opcodes, reserved bits, LOOPs too deep or with a count that does not fit,
        # ENDLOOPs without LOOP, SETs of other registers than 1 to 15, words after the last one.
        wrong = Signal()
        value = Signal(IMMEDIATE_WIDTH)
        m.d.comb += [
            registers.read_en.eq(decides),
            registers.read_addr.eq(coming[IMMEDIATE_WIDTH:WORD_WIDTH]),
            value.eq(word[:IMMEDIATE_WIDTH] + registers.read_data),
            self.o.p.engine.eq(now.engine),
            self.o.p.first.eq(now.first),
            self.o.p.last.eq(now.last),
            self.o.p.word.eq(Mux(now.first, word, value)),
            self.o.valid.eq(self.busy & ~wrong & (action == Action.SEND)),
            loops.clear.eq(starting),
            loops.pc.eq(pc),
            loops.count.eq(value),
            again.eq(loops.turn & loops.again),
        ]
        acting = self.busy & ~program.repair if late else self.busy
        refused = self._act(m, action, value, registers, loops, acting, wrong)
        m.d.sync += wrong.eq(refused)
        with m.If(refused & ~wrong), m.Switch(action):
            with m.Case(Action.SELECT):
                m.d.sync += self.cause.eq(Cause.REGISTER)
            with m.Case(Action.LOOP, Action.ENDLOOP):
                m.d.sync += self.cause.eq(Cause.LOOP)
            with m.Default():
                m.d.sync += self.cause.eq(Mux(outside, Cause.PROGRAM, Cause.INSTRUCTION))
        with m.If(wrong):
            m.d.sync += [self.busy.eq(0), self.error.eq(1)]
        with m.If(starting):
            m.d.sync += [self.busy.eq(1), self.error.eq(0)]
        gather(m, self, [Mux(self.busy, errors, 0) for errors in errors_of([program, registers])])

    def _early(self, m: Module, word: Value) -> Signal:
        """Return a word's effect as a header."""
        early = Signal(_Early)
        m.d.comb += early.eq(_Early.const({"action": Action.REFUSE, "follows": 0}))
        with m.Switch(word[:5]):
            for definition in self.instructions:
                action = _HEADER_ACTIONS.get(definition.opcode, Action.SEND)
                with m.Case(definition.opcode):
                    m.d.comb += [
                        early.action.eq(action),
                        early.follows.eq(bool(definition.operands)),
                    ]
                    with m.If((word & definition.reserved).any()):
                        m.d.comb += [early.action.eq(Action.REFUSE), early.follows.eq(0)]
        return early

    def _header(self, m: Module, word: Signal) -> Signal:
        """Return the further meaning of a word as a header."""
        header = Signal(_Header)
        with m.Switch(word[:5]):
            for definition in self.instructions:
                then = _OPERAND_ACTIONS.get(definition.opcode, Action.SEND)
                with m.Case(definition.opcode):
                    m.d.comb += [
                        header.operands.eq(len(definition.operands)),
                        header.then.eq(then),
                    ]
                    if definition.engine is not None:
                        m.d.comb += header.engine.eq(definition.engine)
        return header

    def _decode(self, m: Module, here, word, fresh, starting: Signal) -> Signal:
        """Decode a word: a header, or the next operand of the last header.

        Without ``fresh`` there is no word and no effect. ``here`` is the word's effect as a header.
        """
        decoded, current = Signal(_Decoded), Signal(_Decoded)
        left = Signal(range(MAX_WORDS))
        header = self._header(m, word)
        m.d.comb += decoded.eq(current)
        with m.If(current.first):
            m.d.comb += [
                decoded.engine.eq(header.engine),
                decoded.last.eq(~here.follows),
                decoded.action.eq(here.action),
            ]
        with m.If(~fresh):
            m.d.comb += decoded.action.eq(Action.NOTHING)
        with m.If(fresh & self.advance):
            # The next word's meaning unless it is a header.
            with m.If(current.first):
                m.d.sync += [
                    left.eq(header.operands),
                    current.engine.eq(header.engine),
                    current.first.eq(~here.follows),
                    current.last.eq(header.operands == 1),
                    current.action.eq(header.then),
                ]
            with m.Else():
                m.d.sync += [
                    left.eq(left - 1),
                    current.first.eq(current.last),
                    current.last.eq(left == 2),
                ]
                with m.If(current.action == Action.SELECT):
                    m.d.sync += current.action.eq(Action.SET)
        with m.If(starting):
            m.d.sync += current.first.eq(1)
        return decoded

    def _act(self, m, action, value, registers: Ram, loops: Loops, acting: Value, wrong: Signal):
        """Run a control word, or wait until the word is sent; return whether it is refused.

        ``wrong``: the previous word was refused. ``acting``: this word is not being corrected.
        """
        refused = Signal()
        selected = Signal(range(REGISTERS))
        advance = self.advance
        m.d.comb += [
            advance.eq(acting),
            registers.write_en.eq(self.register_en & (self.register_index != 0)),
            registers.write_addr.eq(self.register_index),
            registers.write_data.eq(self.register_data),
        ]
        with m.If(self.scrub & ~self.register_en):
            m.d.comb += [
                registers.write_en.eq(1),
                registers.write_addr.eq(0),
                registers.write_data.eq(0),
            ]
        with m.If(self.busy), m.Switch(action):
            with m.Case(Action.SEND):
                m.d.comb += advance.eq(self.o.ready)
            with m.Case(Action.SELECT):
                m.d.sync += selected.eq(value)
                m.d.comb += refused.eq((value == 0) | value[len(selected) :].any())
            with m.Case(Action.SET):
                m.d.comb += [
                    registers.write_en.eq(~wrong),
                    registers.write_addr.eq(selected),
                    registers.write_data.eq(value),
                ]
            with m.Case(Action.LOOP):
                m.d.comb += [
                    loops.enter.eq(1),
                    refused.eq(loops.full | (value == 0) | value[COUNT_WIDTH:].any()),
                ]
            with m.Case(Action.ENDLOOP):
                m.d.comb += [loops.turn.eq(1), refused.eq(loops.empty)]
            with m.Case(Action.HALT):
                m.d.comb += [advance.eq(0), self.halted.eq(1)]
                m.d.sync += self.busy.eq(~self.idle)
            with m.Case(Action.REFUSE):
                m.d.comb += refused.eq(1)
        return refused
