"""Fetches a program's words, runs its loops, resolves its operands."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import (
    COUNT_WIDTH,
    DEFINITIONS,
    IMMEDIATE_WIDTH,
    LOOP_LEVELS,
    MAX_WORDS,
    REGISTERS,
    WORD_WIDTH,
    Opcode,
)
from hdl.ports import WORD
from hdl.ram import Ram


class Sequencer(wiring.Component):
    """Sends the words of engine instructions to ``o``, one a cycle, and runs the others itself.

    ``start`` begins at word ``pc``; ``busy`` is 1 until HALT, which waits for ``idle``. Headers go
    out as they are; operands as immediate plus register, in the low 28 bits. A control
    instruction takes one cycle a word. A word that is no instruction, or a loop nested deeper
    than LOOP_LEVELS, stops the run with ``error``, which holds until the next start. The program
    and the registers are written through ``program`` and ``register`` while nothing runs.
    """

    def __init__(self, config: Config):
        self.config = config
        addr_width = (config.program_depth - 1).bit_length()
        super().__init__(
            {
                "start": In(1),
                "pc": In(addr_width),
                "idle": In(1),
                "busy": Out(1),
                "error": Out(1),
                "program_en": In(1),
                "program_addr": In(addr_width),
                "program_data": In(WORD_WIDTH),
                "register_en": In(1),
                "register_index": In(range(REGISTERS)),
                "register_data": In(IMMEDIATE_WIDTH),
                "o": Out(stream.Signature(WORD)),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.program = program = Ram(WORD_WIDTH, self.config.program_depth)
        m.d.comb += [
            program.write_en.eq(self.program_en),
            program.write_addr.eq(self.program_addr),
            program.write_data.eq(self.program_data),
            program.read_en.eq(1),
        ]
        word = program.read_data
        pc, following = Signal.like(self.pc), Signal.like(self.pc)
        step, jump = Signal(), Signal()
        target = Signal.like(self.pc)
        m.d.comb += [
            following.eq(Mux(step, Mux(jump, target, pc + 1), pc)),
            program.read_addr.eq(Mux(self.busy, following, self.pc)),
        ]
        m.d.sync += pc.eq(program.read_addr)

        # A header says how many operands follow.
        opcode, left = Signal(Opcode), Signal(range(MAX_WORDS))
        header = Signal()
        current = Signal(Opcode)
        operands, on_engine, known = Signal(range(MAX_WORDS)), Signal(), Signal()
        m.d.comb += [header.eq(left == 0), current.eq(Mux(header, word[:5], opcode))]
        with m.Switch(current):
            for definition in DEFINITIONS.values():
                with m.Case(definition.opcode):
                    m.d.comb += [
                        known.eq(1),
                        operands.eq(len(definition.operands)),
                        on_engine.eq(definition.engine is not None),
                    ]
                    if definition.engine is not None:
                        m.d.comb += self.o.p.engine.eq(definition.engine)

        registers = Array(Signal(IMMEDIATE_WIDTH, name=f"r{number}") for number in range(REGISTERS))
        value = Signal(IMMEDIATE_WIDTH)
        m.d.comb += [
            value.eq(word[:IMMEDIATE_WIDTH] + registers[word[IMMEDIATE_WIDTH:]]),
            self.o.p.first.eq(header),
            self.o.p.last.eq(Mux(header, operands == 0, left == 1)),
            self.o.p.word.eq(Mux(header, word, value)),
            self.o.valid.eq(self.busy & known & on_engine),
            step.eq(self.busy & known & Mux(on_engine, self.o.ready, 1)),
        ]
        with m.If(step):
            m.d.sync += [opcode.eq(current), left.eq(Mux(header, operands, left - 1))]
        self._control(m, current, header, left, step, value, registers, jump, target, pc)

        with m.If(self.register_en & (self.register_index != 0)):
            m.d.sync += registers[self.register_index].eq(self.register_data)
        with m.If(self.busy & header & ~known):
            m.d.sync += [self.busy.eq(0), self.error.eq(1)]
        with m.If(self.start & ~self.busy):
            m.d.sync += [self.busy.eq(1), self.error.eq(0), left.eq(0)]
        return m

    def _control(self, m, current, header, left, step, value, registers, jump, target, pc):
        """Run LOOP, ENDLOOP, SET and HALT."""
        body = Array(Signal.like(pc, name=f"body_{level}") for level in range(LOOP_LEVELS))
        count = Array(Signal(COUNT_WIDTH, name=f"count_{level}") for level in range(LOOP_LEVELS))
        depth = Signal(range(LOOP_LEVELS + 1))
        inner = Signal(range(LOOP_LEVELS))
        register = Signal(range(REGISTERS))
        m.d.comb += [inner.eq(depth - 1), target.eq(body[inner])]
        with m.Switch(current):
            with m.Case(Opcode.HALT):
                m.d.comb += step.eq(0)
                with m.If(self.busy & self.idle):
                    m.d.sync += self.busy.eq(0)
            with m.Case(Opcode.LOOP), m.If(self.busy & ~header):
                with m.If(depth == LOOP_LEVELS):
                    m.d.sync += [self.busy.eq(0), self.error.eq(1)]
                with m.Else():
                    m.d.sync += [
                        body[depth].eq(pc + 1),
                        count[depth].eq(value),
                        depth.eq(depth + 1),
                    ]
            with m.Case(Opcode.ENDLOOP), m.If(self.busy):
                with m.If(depth == 0):
                    m.d.sync += [self.busy.eq(0), self.error.eq(1)]
                with m.Elif(count[inner] == 1):
                    m.d.sync += depth.eq(depth - 1)
                with m.Else():
                    m.d.comb += jump.eq(1)
                    m.d.sync += count[inner].eq(count[inner] - 1)
            with m.Case(Opcode.SET), m.If(self.busy & ~header):
                with m.If(left == 2):
                    m.d.sync += register.eq(value)
                with m.Elif(register != 0):
                    m.d.sync += registers[register].eq(value)
        with m.If(self.start & ~self.busy):
            m.d.sync += depth.eq(0)
