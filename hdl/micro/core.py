"""The core of the microcoded machine: it runs the micro-instructions of ``arch.micro.isa``."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from arch.micro.config import MicroConfig
from arch.micro.isa import IMMEDIATE_WIDTH, REGISTERS
from hdl.arithmetic.serial_multiplier import SerialMultiplier
from hdl.component import Component
from hdl.memory.byte_ram import BytePort
from hdl.memory.ram import Ram
from hdl.micro.alu import MicroAlu
from hdl.micro.decode import CONTROL, MicroDecode, Source
from hdl.ports import MemoryReadPort, MemoryWritePort


class MicroCore(Component):
    """Runs ``microcode`` (words) from address 0 on, one micro-instruction a cycle.

    While one runs, the next one's registers are read and the one behind it is fetched, so that a
    taken branch costs one cycle. ``sp`` and ``data`` are the ports of scratchpad (16 bits a word)
    and data memory (32 bits a word, ``data_depth`` of them). With ``hold`` the data memory is
    another's, and the core stands still. ``weight``, ``blank`` and ``enter`` tell the array that
    ``operand`` is for it; ``step`` takes ``sum``. ``waiting`` is 1 in START, which goes on with
    ``go`` and takes ``pc``; ``signal`` tells ``signal_value``.
    """

    def __init__(self, config: MicroConfig, microcode: list[int], data_depth: int):
        self.config = config
        self._microcode = microcode
        super().__init__(
            {
                "mem_read": Out(MemoryReadPort(config)),
                "mem_write": Out(MemoryWritePort(config)),
                "sp": Out(BytePort(16, config.scratchpad_bytes // 2)),
                "data": Out(BytePort(32, data_depth)),
                "hold": In(1),
                "weight": Out(1),
                "blank": Out(1),
                "enter": Out(1),
                "operand": Out(8),
                "step": Out(1),
                "sum": In(signed(32)),
                "waiting": Out(1),
                "go": In(1),
                "pc": In((config.program_depth - 1).bit_length()),
                "signal": Out(1),
                "signal_value": Out(2),
            }
        )
        # The micro-instruction that runs: what it does, its registers' values and numbers.
        self._control = Signal(CONTROL)
        self._a, self._b = Signal(32), Signal(32)
        self._ra, self._rd = Signal(6), Signal(6)
        self._immediate = Signal(signed(IMMEDIATE_WIDTH))
        self._address = Signal(32)  # of a memory
        # Its first cycle, its number of cycles so far up to 2, its last cycle.
        self._first, self._phase, self._advance = Signal(), Signal(2), Signal()
        self._word = Signal(32)  # of microcode
        width = (len(microcode) - 1).bit_length()
        self._next = Signal(width, init=(1 << width) - 1)  # address of the word; 0 comes first

    def elaborate(self, _platform):
        m = Module()
        control, a, b = self._control, self._a, self._b
        m.submodules.alu = alu = MicroAlu()
        m.submodules.multiplier = multiplier = SerialMultiplier()
        m.d.comb += [
            alu.a.eq(a),
            alu.b.eq(Mux(control.immediate, self._immediate, b)),
            alu.control.eq(control.alu),
            self._address.eq(Mux(control.at_a, a, alu.sum)),
            self._first.eq((self._phase == 0) & ~self.hold),
            multiplier.a.eq(a),
            multiplier.b.eq(b),
            multiplier.rounds.eq(control.rounds),
            multiplier.start.eq(control.multiply & self._first),
            self.waiting.eq(control.start),
            self.signal.eq(control.signal & self._first),
            self.signal_value.eq(self._immediate),
        ]
        taken, moved = self._memory(m)
        loaded = self._scratchpad(m)
        self._data(m)
        waits = (control.product & multiplier.busy) | (control.start & ~self.go) | ~moved
        self._progress(m, waits)
        self._fetch(m, alu)
        value = Signal(32)
        source = Signal(Source)
        with m.If(~(self._first & control.steps)):
            m.d.comb += source.eq(control.source)
        with m.Switch(source):
            for name, found in (
                (Source.ALU, alu.result),
                (Source.DATA, self.data.read_data),
                (Source.MICROCODE, self._word),
                (Source.SCRATCHPAD, loaded),
                (Source.LOW, multiplier.p[:32]),
                (Source.MIDDLE, multiplier.p[31:63]),
                (Source.MEMORY, taken),
                (Source.ADDRESS, Mux(control.jump, self._next, self.pc)),
            ):
                with m.Case(name):
                    m.d.comb += value.eq(found)
        self._registers(m, value)
        return m

    def _progress(self, m, waits):
        """Count the cycles of a micro-instruction, up to its last one."""
        control = self._control
        last = Signal(2)
        # Two bytes from an odd address on take one more.
        m.d.comb += [
            last.eq(control.slow + (control.half & self._address[0])),
            self._advance.eq((self._phase == last) & ~waits & ~self.hold),
        ]
        with m.If(self._advance):
            m.d.sync += self._phase.eq(0)
        with m.Elif(~self.hold & (self._phase != last)):
            m.d.sync += self._phase.eq(self._phase + 1)

    def _fetch(self, m, alu):
        """Fetch the micro-instruction behind the next one, and let the next one begin."""
        control = self._control
        m.submodules.microcode = rom = Memory(
            shape=unsigned(32), depth=len(self._microcode), init=self._microcode
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
        with m.Elif(branches):
            m.d.comb += place.eq(self._immediate)
        with m.Elif(read_constant):
            m.d.comb += place.eq(self._next)  # the constant has taken its place

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

    def _registers(self, m, value):
        """Write a register, and read those of the next micro-instruction."""
        control = self._control
        number = Signal(6)
        m.d.comb += number.eq(self._rd)
        with m.If(self._first & control.steps):
            m.d.comb += number.eq(self._ra)
        with m.Elif(control.put):
            m.d.comb += number.eq(self._a)
        writes = (self._first & control.writes_first) | (self._advance & control.writes_last)
        # Register 0 is written by the first micro-instruction only, which makes it 0.
        opening = Signal(init=1)
        with m.If(self._first & control.writes_first):
            m.d.sync += opening.eq(0)
        for name, low, operand in (("a", 6, self._a), ("b", 12, self._b)):
            m.submodules[f"registers_{name}"] = registers = Ram(32, REGISTERS, transparent=True)
            m.d.comb += [
                registers.write_en.eq(writes & (number.any() | opening)),
                registers.write_addr.eq(number),
                registers.write_data.eq(value),
                registers.read_en.eq(self._advance),
                registers.read_addr.eq(self._word[low : low + 6]),
                operand.eq(registers.read_data),
            ]

    def _scratchpad(self, m):
        """Access the scratchpad, and return what has been read, extended; tell the array."""
        control, sp, value = self._control, self.sp, self._b
        odd = Signal()
        again = Signal()
        m.d.comb += [
            odd.eq(self._address[0]),
            again.eq(control.half & odd & (self._phase == 1) & ~self.hold),
            sp.en.eq(control.scratchpad & (self._first | again)),
            sp.addr.eq(self._address[1:]),
            sp.mask.eq(Mux(odd, 0b10, Mux(control.half, 0b11, 0b01))),
            sp.write_data.eq(Cat(value[:8], value[:8])),
        ]
        behind = Signal.like(sp.addr)
        m.d.sync += behind.eq(sp.addr + 1)
        with m.If(control.half):
            m.d.comb += sp.write_data.eq(Mux(odd, Cat(value[8:16], value[:8]), value[:16]))
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
            self.weight.eq(control.weight & self._first),
            self.blank.eq(control.blank & self._first),
            self.enter.eq(control.enter & self._first),
        ]
        m.d.comb += self.operand.eq(Mux(was_odd, high, low))
        return Cat(found[:8], Mux(control.half, found[8:], top.replicate(8)), top.replicate(16))

    def _data(self, m):
        """Access the data memory."""
        control, data = self._control, self.data
        adds = Signal()
        total = Signal(signed(32))
        m.d.comb += [
            adds.eq(control.sum & (self._phase == 1) & ~self.hold),
            total.eq((data.read_data + self.sum)[: self.config.acc_width].as_signed()),
            data.en.eq((control.data & self._first) | adds),
            data.addr.eq(self._address),
            data.mask.eq((control.data_write | adds).replicate(4)),
            data.write_data.eq(Mux(control.sum, total, self._b)),
            self.step.eq(adds),
        ]

    def _memory(self, m):
        """Access external memory; return the word taken, and whether a wait is over."""
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
        )
        return read.data.payload, ~waits
