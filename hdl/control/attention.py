"""Expands ATTENTION into the engines' commands, between sequencer and queues."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from arch.isa import (
    COUNT_WIDTH,
    DEFINITIONS,
    FLAG_SHIFT,
    IMMEDIATE_WIDTH,
    WORD_WIDTH,
    Engine,
    Opcode,
)
from hdl.component import Component
from hdl.control.attention_steps import (
    GLOBAL_WIDTH,
    OPERANDS,
    RECORD_WIDTH,
    RECORDS,
    ZERO,
    Condition,
    Header,
    Op,
    Step,
    steps,
)
from hdl.ports import WORD

_BLOCKS = data.StructLayout({"newest": 1, "middle": 1, "oldest": 1})
_OPENING = data.StructLayout({"pop": len(Engine), "push": len(Engine), "first": 1, "wide_out": 1})
"""The fields kept of an ATTENTION's header."""
_KINDS = {
    "stores": (Op.STORE,),
    "jumps": (Op.JUMP,),
    "multiplies": (Op.MULTIPLY,),
    "sends": (Op.HEADER, Op.SEND, Op.SEND_LAST),
}
"""The effects of a step that are registered before it runs."""
_PRODUCT = data.StructLayout({"under_way": 1, "spent": 1})
"""A product is computed (bit 0), in its last cycle (bit 1)."""


def step_layout(program: list[Step]) -> data.StructLayout:
    """Return the layout of a program's steps."""
    return data.StructLayout(
        {
            "op": Op,
            "block": unsigned(2),
            "place": unsigned(GLOBAL_WIDTH),
            "target": unsigned((len(program) - 1).bit_length()),
        }
    )


def _address(step, slot):
    """Return where a step's register is: common ones first, then those of blocks."""
    record = Cat(step.place[:RECORD_WIDTH], (slot - (step.block - 1))[: len(slot)])
    padding = C(0, GLOBAL_WIDTH - len(record))
    return Mux(step.block == 0, step.place, Cat(record, padding, C(1, 1)))


def _kinds(step):
    """Return which of the kinds a step is."""
    return Cat(Cat(step.op == op for op in ops).any() for ops in _KINDS.values())


class AttentionExpander(Component):
    """Passes the sequencer's words on, but in place of an ATTENTION's those of its commands.

    The commands are :func:`arch.attention.expand`'s, word for word. A small machine makes them: a
    memory of registers, which begins with the ATTENTION's operands, one sum, and a program
    (``attention_steps``) of one step a cycle; a jump that is taken costs one more, a product
    one more for each bit of its smaller factor. A block of rows, of five commands, takes about
    160 cycles if ``o`` is always ready. Other words pass in the cycle in which they come.
    ``busy`` from an ATTENTION's first word until its last command was sent.

    With ``registered`` a step's register is read a cycle before the step acts: the first command
    comes a cycle later, and a jump that is taken costs two.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, *, registered: bool = False):
        self.registered = registered
        super().__init__(
            {
                "i": In(stream.Signature(WORD)),
                "o": Out(stream.Signature(WORD)),
                "busy": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.registers = registers = Memory(
            shape=unsigned(IMMEDIATE_WIDTH), depth=2 << GLOBAL_WIDTH, init=[]
        )
        # Read as it is used: a block RAM's data, a cycle after its address, would be late in it.
        write, read = registers.write_port(), registers.read_port(domain="comb")
        opening = Signal(_OPENING)
        running = Signal()
        begins = self._take(m, write, opening, running)
        self._run(m, write, read, opening, running, begins)
        return m

    def _take(self, m, write, opening, running):
        """Pass words on, but keep an ATTENTION's; return whether its last one comes."""
        taking = Signal()
        opens = Signal()
        kept = Signal()
        ends = Signal()
        index = Signal(range(len(OPERANDS)))
        word = self.i.p.word
        m.d.comb += [
            opens.eq(self.i.valid & self.i.p.first & (word[:5] == Opcode.ATTENTION)),
            kept.eq(self.i.valid & taking),
            ends.eq(kept & self.i.p.last),
            self.busy.eq(opens | taking | running),
        ]
        with m.If(~running & (opens | taking)):
            m.d.comb += self.i.ready.eq(1)
        with m.Elif(~running):
            m.d.comb += [
                self.o.p.eq(self.i.p),
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
            ]
        with m.If(~running & opens):
            # The register that is 0 is a word like the others.
            m.d.comb += [write.en.eq(1), write.addr.eq(ZERO), write.data.eq(0)]
            flags = word[FLAG_SHIFT:]
            bit = DEFINITIONS[Opcode.ATTENTION].flag_bit
            m.d.sync += [
                taking.eq(1),
                index.eq(0),
                opening.pop.eq(word[5:9]),
                opening.push.eq(word[9:13]),
                opening.first.eq(flags.bit_select(bit("first"), 1)),
                opening.wide_out.eq(flags.bit_select(bit("wide_out"), 1)),
            ]
        with m.If(kept):
            m.d.comb += [
                write.en.eq(1),
                write.addr.eq(index),
                write.data.eq(word),
            ]
            m.d.sync += [index.eq(index + 1), taking.eq(~ends)]
        return ends

    def _run(self, m, write, read, opening, running, begins):
        """Fetch a step, with its register, while the one before acts."""
        program = steps()
        layout = step_layout(program)
        entries = [
            {
                "op": s.op,
                "block": s.block,
                "place": s.place % (1 << GLOBAL_WIDTH),
                "target": s.target,
            }
            for s in program
        ]
        m.submodules.program = rom = Memory(shape=layout, depth=len(entries), init=entries)
        fetch = rom.read_port()
        pc = Signal.like(fetch.addr)
        coming, now = fetch.data, Signal(layout)
        slot = Signal(range(RECORDS))
        total = Signal(IMMEDIATE_WIDTH)
        arrives, acting = running, Signal()
        operand = read.data
        advance = Signal(init=1)
        jump = Signal()
        done = Signal()
        m.d.comb += [
            advance.eq(1),
            done.eq(acting & (now.op == Op.DONE)),
            fetch.addr.eq(Mux(jump, now.target, Mux(running, pc + 1, 0))),
            fetch.en.eq(advance),
        ]
        kind = Signal(data.StructLayout(dict.fromkeys(_KINDS, 1)))
        address = _address(now, slot)
        product = Signal(_PRODUCT)
        if self.registered:
            coming, arrives = Signal(layout), Signal()
            address = Signal.like(read.addr)
            operand = Signal(IMMEDIATE_WIDTH)
            stored = acting & kind.stores & (address == read.addr)
            with m.If(advance):
                m.d.sync += [
                    coming.eq(fetch.data),
                    arrives.eq(running & ~jump & ~done),
                    kind.eq(_kinds(coming)),
                    address.eq(read.addr),
                    operand.eq(Mux(stored, total, read.data)),
                ]
                with m.If(coming.op == Op.ADD_CONSTANT):
                    m.d.sync += operand.eq(coming.place.as_signed())
            with m.If(product.under_way & ~product.spent):
                m.d.sync += operand.eq(operand << 1)
        else:
            m.d.comb += kind.eq(_kinds(now))
        with m.If(advance):
            m.d.sync += [
                pc.eq(fetch.addr),
                now.eq(coming),
                read.addr.eq(_address(fetch.data, slot)),
                acting.eq(arrives & ~jump & ~done),
            ]
        some = Signal()
        m.d.sync += [running.eq((running | begins) & ~done), some.eq(total != 0)]
        blocks = self._blocks(m, now, acting, begins, slot)
        with m.If(acting):
            adder = self._compute(m, operand, now, slot, total)
            with m.If(kind.multiplies):
                self._multiply(m, operand, total, product, adder, advance)
            self._send(m, operand, opening, now, kind, blocks, advance)
            with m.If(kind.stores):
                m.d.comb += [
                    write.en.eq(1),
                    write.addr.eq(address),
                    write.data.eq(total),
                ]
            with m.If(kind.jumps), m.Switch(now.place):
                for condition, holds in (
                    (Condition.NOT_ZERO, some),
                    (Condition.NO_NEWEST, ~blocks.newest),
                    (Condition.NO_MIDDLE, ~blocks.middle),
                    (Condition.NO_OLDEST, ~blocks.oldest),
                    (Condition.MIDDLE, blocks.middle),
                    (Condition.BLOCKS, blocks.as_value().any()),
                ):
                    with m.Case(condition):
                        m.d.comb += jump.eq(holds)

    def _blocks(self, m, now, acting, begins, slot):
        """Return which blocks are under way; ``slot`` is where the newest one's registers are."""
        blocks = Signal(_BLOCKS)
        further = Signal()
        with m.If(begins):
            m.d.sync += [blocks.eq(_BLOCKS.const({"newest": 1})), further.eq(1), slot.eq(0)]
        with m.Elif(acting & (now.op == Op.EXHAUST)):
            m.d.sync += further.eq(0)
        with m.Elif(acting & (now.op == Op.ROTATE)):
            m.d.sync += [
                blocks.newest.eq(further),
                blocks.middle.eq(blocks.newest),
                blocks.oldest.eq(blocks.middle),
                slot.eq(slot + 1),
            ]
        return blocks

    def _compute(self, m, operand, now, slot, total):
        """Change the sum, but for products; return what is added to it, and the result."""
        addend = Signal(IMMEDIATE_WIDTH)
        subtract = Signal()
        added = Signal(IMMEDIATE_WIDTH)
        smaller = Signal()
        sign = 1 << (IMMEDIATE_WIDTH - 1)
        m.d.comb += [
            subtract.eq(now.op == Op.SUB),
            addend.eq(Mux(subtract, ~operand, operand)),
            added.eq(total + addend + subtract),
            # Of numbers with signs, compared without: one carry chain.
            smaller.eq((total ^ sign) < (operand ^ sign)),
        ]
        with m.Switch(now.op):
            with m.Case(Op.LOAD):
                m.d.sync += total.eq(operand)
            with m.Case(Op.ADD, Op.SUB):
                m.d.sync += total.eq(added)
            with m.Case(Op.ADD_ODD), m.If(slot[0]):
                m.d.sync += total.eq(added)
            with m.Case(Op.ADD_CONSTANT):
                if not self.registered:
                    m.d.comb += addend.eq(now.place.as_signed())
                m.d.sync += total.eq(added)
            with m.Case(Op.MIN), m.If(~smaller):
                m.d.sync += total.eq(operand)
            with m.Case(Op.MAX), m.If(smaller):
                m.d.sync += total.eq(operand)
        return addend, added

    def _multiply(self, m, operand, total, product, adder, advance):
        """Add the operand, doubled from cycle to cycle, for each bit that the sum had."""
        addend, added = adder
        factor = Signal(COUNT_WIDTH)
        # A register may be doubled where it is.
        doubled = operand if self.registered else Signal(IMMEDIATE_WIDTH)
        m.d.comb += [
            advance.eq(product.under_way & product.spent),
            addend.eq(Mux(factor[0], doubled, 0)),
        ]
        m.d.sync += product.under_way.eq(~advance)
        with m.If(product.under_way):
            m.d.sync += [
                total.eq(added),
                factor.eq(factor >> 1),
                product.spent.eq((factor[1:] == 0) | (doubled[:-1] == 0)),
            ]
            if not self.registered:
                m.d.sync += doubled.eq(doubled << 1)
        with m.Else():
            m.d.sync += [
                total.eq(0),
                factor.eq(total),
                product.spent.eq((total[: len(factor)] == 0) | (operand == 0)),
            ]
            if not self.registered:
                m.d.sync += doubled.eq(operand)

    def _send(self, m, operand, opening, now, kind, blocks, advance):
        """Send a header, or a register as an operand, and wait until it is taken."""
        header = Signal(WORD_WIDTH)
        engine = Signal(Engine)
        engine_before = Signal(Engine)
        is_header = Signal()
        m.d.comb += is_header.eq(now.op == Op.HEADER)
        with m.Switch(now.place):
            for name, fields in self._headers(opening, blocks).items():
                opcode, pop, push, flags = fields
                known = DEFINITIONS[opcode]
                flag_word = Cat(flags.get(flag, C(0, 1)) for flag in known.flags)
                with m.Case(name):
                    m.d.comb += [
                        engine.eq(known.engine),
                        header[:5].eq(opcode),
                        header[5:9].eq(pop),
                        header[9:13].eq(push),
                        header[FLAG_SHIFT:].eq(flag_word),
                    ]
        with m.If(kind.sends):
            m.d.comb += [
                self.o.valid.eq(1),
                self.o.p.engine.eq(Mux(is_header, engine, engine_before)),
                self.o.p.first.eq(is_header),
                self.o.p.last.eq(now.op == Op.SEND_LAST),
                self.o.p.word.eq(Mux(is_header, header, operand)),
                advance.eq(self.o.ready),
            ]
        with m.If(is_header & self.o.ready):
            m.d.sync += engine_before.eq(engine)
            with m.If(now.place == Header.SCORES):
                m.d.sync += opening.pop.eq(0)  # only the first command takes these tokens

    def _headers(self, opening, blocks):
        """Return each command's opcode, the tokens that it takes and gives, and its flags."""
        one = C(1, 1)
        matrix, vector = C(1 << Engine.MATRIX, len(Engine)), C(1 << Engine.VECTOR, len(Engine))
        drained = {"wide_out": one, "per_tensor": one}
        weighed = {"per_tensor": one, "online": one, "first": opening.first}
        output = {
            "per_tensor": one,
            "running": one,
            "wide_out": opening.wide_out,
            "add": ~opening.first,
        }
        given = Mux(blocks.middle, 0, opening.push)
        return {
            Header.SCORES: (Opcode.MATMUL, opening.pop, vector, {"b_transpose": one}),
            Header.DRAIN: (Opcode.DRAIN, matrix, 0, drained),
            Header.WEIGHTS: (Opcode.SOFTMAX, 0, matrix, weighed),
            Header.VALUES: (Opcode.MATMUL, vector, vector, {}),
            Header.OUTPUT: (Opcode.DRAIN, matrix, given, output),
        }
