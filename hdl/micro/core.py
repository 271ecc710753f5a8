"""The core of the microcoded machine, with the instruction set ``celosia.arch.micro.isa``."""

from amaranth.hdl import Cat, Const, Mux, Signal, signed, unsigned
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.arch import records
from celosia.arch.micro.isa import IMMEDIATE_WIDTH, REGISTERS
from celosia.hdl.arithmetic.wide_multiplier import WideMultiplier
from celosia.hdl.component import Component
from celosia.hdl.memory.byte_ram import BytePort
from celosia.hdl.memory.ram import Ram
from celosia.hdl.micro.alu import MicroAlu
from celosia.hdl.micro.decode import CONTROL, MicroDecode, Source
from celosia.hdl.micro.requantizer import MicroRequantizer
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort

_REPEAT_WIDTH = 12
"""Width of a repetition count (bits)."""

ARRAY_STROBES = ("weight", "weights", "blank", "enter", "enters", "begin", "take", "step")
"""Names of the core's outputs that control :class:`MicroArray`."""


class MicroCore(Component):
    """Runs ``microcode``, a list of words, from address 0 on, one micro-instruction per cycle.

    A taken branch costs a further cycle. The core stops while ``hold`` is 1. At the
    micro-instruction START, ``waiting`` is 1 until ``go`` is 1. ``signal`` is 1 when the microcode
    reports event ``signal_value``.
    """

    weight: Signal
    """1 if ``operand`` is the next weight."""
    weights: Signal
    """1 if the two bytes read on ``sp`` are the next weights."""
    blank: Signal
    """1 if the next weight is 0."""
    enter: Signal
    """1 if ``operand`` is the next activation."""
    enters: Signal
    """1 if the two bytes read on ``sp`` are the next activations."""
    begin: Signal
    """1 if sums of the next vector are for accumulator row ``row``."""
    take: Signal
    """1 to read and clear accumulator row ``row``."""
    step: Signal
    """1 to advance ``sum`` by a column."""
    operand: Signal
    """A weight or an activation, for the array's input ``byte``."""
    row: Signal
    """The accumulator row, for the array's input ``row``."""
    sum: Signal
    """A sum of accumulator row ``row``, from the array."""
    pc: Signal
    """The program's address, which START writes to a register."""

    def __init__(
        self,
        microcode: list[int],
        *,
        memory: records.Memory,
        accumulators: records.Accumulators,
        scratchpad_bytes: int,
        program_depth: int,
        data_depth: int,
        requantizer: bool,
    ):
        super().__init__(
            {
                # The array's ports have the same names, except ``byte`` (``operand``) and ``word``
                # (the data read on ``sp``).
                "mem_read": Out(MemoryReadPort(memory)),
                "mem_write": Out(MemoryWritePort(memory)),
                "sp": Out(BytePort(16, scratchpad_bytes // 2)),
                "data": Out(BytePort(32, data_depth)),
                "hold": In(1),
                **dict.fromkeys(ARRAY_STROBES, Out(1)),
                "operand": Out(8),
                "row": Out((accumulators.depth - 1).bit_length()),
                "sum": In(signed(accumulators.width)),
                "waiting": Out(1),
                "go": In(1),
                # The program's address, which START writes to a register.
                "pc": In((program_depth - 1).bit_length()),
                "signal": Out(1),
                "signal_value": Out(2),
            }
        )
        # The current micro-instruction: its control bits, register values and register numbers.
        self._control = Signal(CONTROL)
        self._a, self._b = Signal(32), Signal(32)
        self._ra, self._rd = Signal(6), Signal(6)
        self._immediate = Signal(signed(IMMEDIATE_WIDTH))
        self._address = Signal(32)  # of a memory
        # Its first cycle, its number of cycles so far up to 2, its last cycle.
        self._first, self._phase, self._advance = Signal(), Signal(2), Signal()
        self._moved = Signal()  # the event that its first cycle awaits has happened
        self._again = Signal()  # it runs once more
        self._word = Signal(32)  # of microcode
        width = (len(microcode) - 1).bit_length()
        self._next = Signal(width, init=(1 << width) - 1)  # address of the next word; 0 is first

    def circuit(self, m):
        control, a = self._control, self._a
        m.submodules.alu = alu = MicroAlu()
        m.submodules.multiplier = multiplier = WideMultiplier()
        m.d.comb += [
            alu.a.eq(a),
            alu.control.eq(control.alu),
            self._address.eq(Mux(control.at_a, a, alu.sum)),
            self._first.eq((self._phase == 0) & ~self.hold),
            self.waiting.eq(control.start),
            self.signal.eq(control.signal & self._first),
            self.signal_value.eq(self._immediate),
        ]
        ready, scaled, blocked, moves_on = self._multiply(m, multiplier)
        full = control.scale & (self._phase == 0) & blocked
        taken = self._memory(m, full | (control.scaled & ~ready))
        loaded = self._scratchpad(m, taken, scaled)
        self._data(m)
        self._repeat(m)
        m.d.comb += [
            self.row.eq(a),
            self.begin.eq(control.repeat & self._first),
            self.take.eq(control.sums & self._first),
            # SCALESUM adds its bias to the sum in its second cycle.
            self.step.eq(
                (control.sum & self._first) | (control.scale_sum & (self._phase == 1) & ~self.hold)
            ),
        ]
        waits = (
            (control.product & multiplier.busy)
            | (control.start & ~self.go)
            | (control.multiply & blocked)
            | ~self._moved
        )
        self._progress(m, waits | self._again, full)
        self._fetch(m, alu)
        # The sum is last, so that only one lookup table follows it.
        value, other, computed = Signal(32), Signal(32), Signal()
        m.d.comb += [
            computed.eq((control.source == Source.ALU) | (self._first & control.steps)),
            value.eq(Mux(computed, alu.result, other)),
        ]
        with m.Switch(control.source):
            for name, found in (
                (Source.DATA, self.data.read_data),
                (Source.MICROCODE, self._word),
                (Source.SCRATCHPAD, loaded),
                (Source.LOW, multiplier.p[:32]),
                (Source.MIDDLE, multiplier.p[31:63]),
                (Source.MEMORY, taken),
                (Source.ADDRESS, Mux(control.jump, self._next, self.pc)),
                (Source.SUM, self.sum),
                (Source.SCALED, scaled),
            ):
                with m.Case(name):
                    m.d.comb += other.eq(found)
        self._registers(m, value, alu, control.scale & ~moves_on)

    def _repeat(self, m):
        """Repeat a micro-instruction by the count of REPEAT."""
        control, left = self._control, Signal(_REPEAT_WIDTH)
        m.d.comb += self._again.eq(control.repeated & left.any())
        with m.If(control.repeat & self._first):
            m.d.sync += left.eq(self._b - 1)
        with m.Elif(self._again & self._first & self._moved):
            m.d.sync += left.eq(left - 1)

    def _multiply(self, m, multiplier):
        """Connect the operands of the multiplier and, if there is one, the requantizer.

        Return whether a requantized value waits, the value, whether the next value and products
        must wait, and whether SCALE advances to the next parameters.
        """
        control = self._control
        mine = Signal()
        m.d.comb += [
            mine.eq(control.multiply & self._first),
            multiplier.a.eq(self._a),
            multiplier.b.eq(self._b),
            multiplier.start.eq(mine),
            multiplier.b_en.eq(mine),
        ]
        if not self.requantizer:
            return Const(0), Const(0, signed(16)), Const(0), Const(0)
        m.submodules.requantizer = scaled = MicroRequantizer()
        m.d.comb += [
            mine.eq(control.multiply & self._first & ~scaled.blocked),
            multiplier.a.eq(Mux(mine, self._a, scaled.product_a)),
            multiplier.b.eq(Mux(control.multiply, self._b, self.data.read_data)),
            multiplier.rounds.eq(~mine),
            multiplier.start.eq(mine | scaled.multiply),
            multiplier.b_en.eq(mine | scaled.b_en),
            scaled.value.eq(Mux(control.scale_sum, self.sum, self._b)),
            scaled.word.eq(self.data.read_data),
            scaled.begin.eq(control.scale & self._first & ~scaled.blocked),
            scaled.bounds.eq(self._a),
            scaled.zero.eq(self._b),
            scaled.limit.eq(control.bounds),
            scaled.take.eq(control.scaled & self._advance),
            scaled.hold.eq(self.hold),
            scaled.p.eq(multiplier.p),
        ]
        moves_on = Signal()
        with m.If(control.bounds):
            m.d.sync += moves_on.eq(self._b[16] ^ self._b[15])
        return scaled.ready, scaled.result, scaled.blocked, moves_on

    def _progress(self, m, waits, full):
        """Count the cycles of a micro-instruction, up to its last one; stop while ``full``."""
        control = self._control
        last = Signal(2)
        # Two bytes from an odd address on take one more.
        m.d.comb += [
            last.eq(Mux(control.scale, 2, control.slow + (control.half & self._address[0]))),
            self._advance.eq((self._phase == last) & ~waits & ~self.hold),
        ]
        with m.If(self._advance):
            m.d.sync += self._phase.eq(0)
        with m.Elif(~self.hold & ~full & (self._phase != last)):
            m.d.sync += self._phase.eq(self._phase + 1)

    def _fetch(self, m, alu):
        """Fetch the micro-instruction after the next one, and let the next one begin."""
        control = self._control
        m.submodules.microcode = rom = Memory(
            shape=unsigned(32), depth=len(self.microcode), init=self.microcode
        )
        fetch = rom.read_port()
        place = Signal.like(self._next)
        branches, begins = Signal(), Signal()
        reads_constant = Signal()
        read_constant = Signal()
        running = Signal()
        m.d.comb += [
            self._word.eq(fetch.data),
            branches.eq(
                control.branch & (Mux(control.if_less, alu.less, alu.zero) ^ control.if_not)
            ),
            reads_constant.eq(control.constant & (self._phase == 0)),
            read_constant.eq(control.constant & (self._phase != 0)),
            fetch.en.eq((self._advance | reads_constant) & ~self.hold),
            fetch.addr.eq(place),
            place.eq(self._next + 1),
            begins.eq(running & ~control.jump & ~branches & ~read_constant),
        ]
        with m.If(control.jump | reads_constant):
            m.d.comb += place.eq(alu.sum)
        with m.Elif(read_constant):
            m.d.comb += place.eq(self._next)  # the constant has taken its place
        # The branch decision is known last.
        with m.If(branches):
            m.d.comb += place.eq(self._immediate)

        m.submodules.decode = decode = MicroDecode()
        word = self._word
        rb, rd, high = word[12:18], word[18:24], word[24:]
        m.d.comb += decode.operation.eq(word[:6])
        with m.If(self._advance):
            m.d.sync += [
                running.eq(1),
                self._next.eq(place),
                self._control.eq(Mux(begins, decode.control.as_value(), 0)),
                self._ra.eq(word[6:12]),
                self._rd.eq(rd),
                self._immediate.eq(Cat(Mux(decode.store, rd, rb), high)),
            ]

    def _registers(self, m, value, alu, stays):
        """Write a register, unless it ``stays``, and read those of the next micro-instruction."""
        control = self._control
        number = Signal(6)
        m.d.comb += number.eq(self._rd)
        with m.If(self._first & control.steps):
            m.d.comb += number.eq(self._ra)
        with m.Elif(control.put):
            m.d.comb += number.eq(self._a)
        writes = (self._first & self._moved & control.writes_first & ~stays) | (
            self._advance & control.writes_last
        )
        # Register 0 is written by the first micro-instruction only, which makes it 0.
        opening = Signal(init=1)
        with m.If(self._first & control.writes_first):
            m.d.sync += opening.eq(0)
        for name, low, operand in (("a", 6, self._a), ("b", 12, self._b)):
            m.submodules[f"registers_{name}"] = registers = Ram(
                32, REGISTERS, transparent=name == "a", ordered=name == "a"
            )
            m.d.comb += [
                registers.write_en.eq(writes & (number.any() | opening)),
                registers.write_addr.eq(number),
                registers.write_data.eq(value),
                registers.read_en.eq(self._advance),
                registers.read_addr.eq(self._word[low : low + 6]),
            ]
            if name == "a":
                m.d.comb += operand.eq(registers.read_data)
                # A repeated micro-instruction reads the value it has just written.
                with m.If(self._again):
                    m.d.comb += [
                        registers.read_en.eq(self._first & self._moved),
                        registers.read_addr.eq(self._ra),
                    ]
        self._second(m, registers, alu)

    def _second(self, m, registers, alu):
        """Select the second operand: one lookup table is between the registers and the sum."""
        immediate = self._control.immediate
        written, passed = Signal(32, reset_less=True), Signal()
        with m.If(registers.read_en):
            m.d.sync += [
                written.eq(registers.write_data),
                passed.eq(registers.write_en & (registers.write_addr == registers.read_addr)),
            ]
        other = Mux(immediate, self._immediate, written)
        m.d.comb += [
            self._b.eq(Mux(passed, written, registers.read_data)),
            alu.b.eq(Mux(immediate | passed, other, registers.read_data)),
        ]

    def _scratchpad(self, m, taken, scaled):
        """Access the scratchpad, and return the extended read data; control the array.

        ``taken`` is a word of external memory, ``scaled`` a requantized value.
        """
        control, sp, value = self._control, self.sp, self._b
        odd = Signal()
        again = Signal()
        m.d.comb += [
            odd.eq(self._address[0]),
            again.eq(control.half & odd & (self._phase == 1) & ~self.hold),
            sp.en.eq(control.scratchpad & ((self._first & self._moved) | again)),
            sp.addr.eq(self._address[1:]),
            sp.mask.eq(Mux(odd, 0b10, Mux(control.half | control.takes, 0b11, 0b01))),
            sp.write_data.eq(Cat(value[:8], value[:8])),
        ]
        with m.If(control.scaled_byte):
            m.d.comb += sp.write_data.eq(scaled[:8].replicate(2))
        behind = Signal.like(sp.addr)
        m.d.sync += behind.eq(sp.addr + 1)
        with m.If(control.half):
            m.d.comb += sp.write_data.eq(Mux(odd, Cat(value[8:16], value[:8]), value[:16]))
        with m.If(control.takes):
            m.d.comb += sp.write_data.eq(taken)
        with m.If(again):
            m.d.comb += [sp.addr.eq(behind), sp.mask.eq(0b01)]
        with m.If(~control.scratchpad_write):
            m.d.comb += sp.mask.eq(0)

        low, high = sp.read_data[:8], sp.read_data[8:]
        kept = Signal(8)
        with m.If(self._phase == 1):
            m.d.sync += kept.eq(high)
        found = Signal(16)
        with m.If(control.half):
            m.d.comb += found.eq(Mux(odd, Cat(kept, low), sp.read_data))
        with m.Else():
            m.d.comb += found.eq(Mux(odd, high, low))
        top = Mux(control.half, found[15], found[7]) & control.signed
        was_odd = Signal()
        m.d.sync += [
            was_odd.eq(odd),
            *(
                getattr(self, name).eq(getattr(control, name) & self._first)
                for name in ("weight", "weights", "blank", "enter", "enters")
            ),
        ]
        m.d.comb += self.operand.eq(Mux(was_odd, high, low))
        return Cat(found[:8], Mux(control.half, found[8:], top.replicate(8)), top.replicate(16))

    def _data(self, m):
        """Access the data memory."""
        control, data = self._control, self.data
        m.d.comb += [
            data.en.eq(control.data & (self._first | (control.scale & ~self.hold))),
            data.addr.eq(self._address),
            data.mask.eq(control.data_write.replicate(4)),
            data.write_data.eq(self._b),
        ]
        # The bias, the multiplier and the shift, one after another.
        with m.If(control.scale):
            m.d.comb += data.addr.eq(self._a + self._phase)

    def _memory(self, m, other):
        """Access external memory; determine whether its waits and the ``other`` wait are over.

        Return the word read.
        """
        control = self._control
        read, write = self.mem_read, self.mem_write
        writing = Signal()
        with m.If(write.written):
            m.d.sync += writing.eq(0)
        with m.Elif(write.request.valid & write.request.ready):
            m.d.sync += writing.eq(1)
        for kind, request in (("ask", read.request), ("offer", write.request)):
            m.d.comb += [
                request.valid.eq(getattr(control, kind) & ~self.hold),
                request.payload.addr.eq(self._a),
                request.payload.last.eq(self._b),
            ]
        m.d.comb += [
            read.data.ready.eq(control.take & ~self.hold),
            write.data.valid.eq(control.give & ~self.hold),
            write.data.payload.data.eq(self._a),
            write.data.payload.mask.eq(self._b),
        ]
        waits = (
            (control.ask & ~read.request.ready)
            | (control.take & ~read.data.valid)
            | (control.offer & ~write.request.ready)
            | (control.give & ~write.data.ready)
            | (control.awaits & writing)
            | other
        )
        m.d.comb += self._moved.eq(~waits)
        return read.data.payload
