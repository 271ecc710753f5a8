"""Executes requests of the host link: accesses to registers, program and external memory."""

from amaranth.hdl import Array, Cat, Const, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from celosia.arch.link import Command, Identity, Status
from celosia.arch.records import Memory
from celosia.arch.registers import REGISTER_MAP
from celosia.hdl.component import Component
from celosia.hdl.link.answer import ANSWER
from celosia.hdl.link.request import REQUEST
from celosia.hdl.ports import HostPort, MemoryReadPort, MemoryWritePort

REGISTER_SPACE = 1 << 8
"""Number of registers that the host port can address."""

BUSY = 1
"""Bit of STATUS: a run is in progress."""

STATUS_WIDTH = 4
"""Width of STATUS (bits)."""

_WAITING = (Command.READ_MEMORY, Command.WRITE_MEMORY, Command.LOAD_PROGRAM, Command.START)


class LinkExecutor(Component):
    """Executes requests of the host link (``celosia.arch.link``) one after another.

    ``i`` receives the header of a request. ``payload_addr`` selects a byte of the request's
    payload, which must be on ``payload_data`` one cycle later. ``o`` and ``o_bytes`` output the
    answer. ``owns`` is 1 while the link accesses external memory.
    """

    def __init__(self, memory: Memory, *, program_depth: int, identity: Identity):
        super().__init__(
            {
                "i": In(stream.Signature(REQUEST)),
                "payload_addr": Out((identity.payload - 1).bit_length()),
                "payload_data": In(8),
                "o": Out(stream.Signature(ANSWER)),
                "o_bytes": Out(stream.Signature(unsigned(8))),
                "host": Out(HostPort()),
                "mem_read": Out(MemoryReadPort(memory)),
                "mem_write": Out(MemoryWritePort(memory)),
                "owns": Out(1),
                "status": Out(STATUS_WIDTH),
            }
        )

    def circuit(self, m):
        header = self.i.payload.header
        index = Signal(16)
        word = Signal(32)
        code = Signal(Status)
        # A register at the port, which is far from here, adds one cycle.
        host = HostPort().create()
        outputs = ("addr", "write_data", "write_en")
        m.d.sync += [getattr(self.host, name).eq(getattr(host, name)) for name in outputs]
        m.d.comb += host.read_data.eq(self.host.read_data)
        m.d.comb += [
            self.payload_addr.eq(index),
            self.o.payload.tag.eq(header.tag),
            self.o.payload.status.eq(code),
            self.o_bytes.payload.eq(word[:8]),
            # The address if no state requests another one.
            host.addr.eq(REGISTER_MAP["STATUS"].addr),
        ]
        # The source of the previous cycle's byte: external memory, or a register.
        addr = Signal(self.memory.addr_width)
        register = Signal.like(host.addr)
        m.d.sync += [
            addr.eq(header.addr + index),
            register.eq(header.addr + (index >> 2)),
        ]
        rule = self._rule(m)
        polled = Signal(2)
        m.d.sync += polled.eq(polled << 1)
        with m.If(polled[1]):
            m.d.sync += self.status.eq(host.read_data)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [index.eq(0), polled.eq(polled << 1 | 1)]
                with m.If(self.i.valid):
                    m.next = "RULE"
            with m.State("RULE"):
                m.next = "CHECK"
            with m.State("CHECK"):
                self._check(m, rule, code)
            self._read(m, host, index, word, addr, register)
            self._write(m, host, index, word, addr, register)
            with m.State("PC"):
                m.d.comb += [
                    host.addr.eq(REGISTER_MAP["PC"].addr),
                    host.write_data.eq(header.addr),
                    host.write_en.eq(1),
                ]
                m.next = "GO"
            with m.State("GO"):
                m.d.comb += [
                    host.addr.eq(REGISTER_MAP["CONTROL"].addr),
                    host.write_data.eq(1),
                    host.write_en.eq(1),
                ]
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += self.owns.eq(0)
                m.next = "IDLE"

    def _rule(self, m):
        """Return the status that follows from a request's command, address and length.

        It is valid two cycles after the request.
        """
        header = self.i.payload.header
        limit = Signal(32)
        end = Signal(33)
        rule = Signal(Status)
        in_words = Signal()
        with m.Switch(header.command):
            for command, size in (
                (Command.HELLO, len(self.identity.words())),
                (Command.READ_REGISTERS, REGISTER_SPACE),
                (Command.WRITE_REGISTERS, REGISTER_SPACE),
                (Command.LOAD_PROGRAM, self.program_depth),
            ):
                with m.Case(command):
                    m.d.comb += [limit.eq(size), in_words.eq(1)]
            for command in (Command.READ_MEMORY, Command.WRITE_MEMORY):
                with m.Case(command):
                    m.d.comb += limit.eq(self.identity.memory)
            with m.Case(Command.START):
                m.d.comb += limit.eq(self.program_depth - 1)
        m.d.sync += end.eq(header.addr + Mux(in_words, header.length >> 2, header.length))
        with m.If(end > limit):
            m.d.sync += rule.eq(Status.ADDRESS)
        with m.Else():
            m.d.sync += rule.eq(Status.OK)
        with m.If(in_words & header.length[:2].any()):
            m.d.sync += rule.eq(Status.LENGTH)
        with m.If((header.command == Command.START) & (header.length != 0)):
            m.d.sync += rule.eq(Status.LENGTH)
        with m.If(~Cat(header.command == command for command in Command).any()):
            m.d.sync += rule.eq(Status.UNKNOWN)
        return rule

    def _check(self, m, rule, code):
        """Decide whether to execute a request; STATUS of the previous cycle is available."""
        header = self.i.payload.header
        starts = header.command == Command.START
        last_tag, last_started = Signal(8), Signal()
        again, waits = Signal(), Signal()
        m.d.comb += [
            # The host repeats a START that it takes for lost: it is answered, not executed.
            again.eq(starts & last_started & (last_tag == header.tag)),
            waits.eq(Cat(header.command == command for command in _WAITING).any()),
        ]
        m.next = "ANSWER"
        with m.If(self.i.payload.corrupt):
            m.d.sync += code.eq(Status.CORRUPT)
        with m.Else():
            m.d.sync += [last_tag.eq(header.tag), last_started.eq(0), code.eq(rule)]
            with m.If(again):
                m.d.sync += [last_started.eq(1), code.eq(Status.OK)]
            with m.Elif(rule == Status.OK):
                with m.If(waits & self.host.read_data[0]):
                    m.d.sync += code.eq(Status.BUSY)
                with m.Else():
                    m.d.sync += last_started.eq(starts)
                    with m.Switch(header.command):
                        with m.Case(Command.START):
                            m.next = "PC"
                        with m.Case(Command.LOAD_PROGRAM):
                            m.next = "PROGRAM"
                        with m.Case(Command.WRITE_REGISTERS):
                            m.next = "FETCH"
                        with m.Case(Command.WRITE_MEMORY):
                            m.d.sync += self.owns.eq(1)
                            m.next = "FETCH"
                        with m.Case(Command.READ_MEMORY):
                            m.d.sync += self.owns.eq(1)
                            m.next = "BEGIN"
                        with m.Default():
                            m.next = "BEGIN"

    def _read(self, m, host, index, word, addr, register):
        """Send an answer, then its payload byte by byte."""
        header = self.i.payload.header
        request, coming = self.mem_read.request, self.mem_read.data
        offset = addr[: (self.memory.word_bytes - 1).bit_length()]
        identity = Array(Const(value, 32) for value in self.identity.words())
        words = Signal()
        m.d.comb += [
            words.eq(header.command != Command.READ_MEMORY),
            request.payload.addr.eq(addr & -self.memory.word_bytes),
            request.payload.last.eq(0),
        ]
        with m.State("BEGIN"):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.length.eq(header.length)]
            with m.If(self.o.ready):
                m.next = "NEXT"
        with m.State("NEXT"):
            m.d.comb += host.addr.eq(register)
            m.next = "REQUEST"
            with m.If(words):
                m.next = "BYTE"
                with m.If(index[:2] == 0):
                    m.next = "ASK"
            with m.If(index == header.length):
                m.next = "DONE"
        with m.State("ASK"):
            m.next = "WORD"
        with m.State("WORD"):
            m.d.sync += word.eq(host.read_data)
            with m.If(header.command == Command.HELLO):
                m.d.sync += word.eq(identity[register[:3]])
            m.next = "BYTE"
        with m.State("REQUEST"):
            m.d.comb += request.valid.eq(1)
            with m.If(request.ready):
                m.next = "COMING"
        with m.State("COMING"):
            m.d.comb += coming.ready.eq(1)
            m.d.sync += word.eq(coming.payload.word_select(offset, 8))
            with m.If(coming.valid):
                m.next = "BYTE"
        with m.State("BYTE"):
            m.d.comb += self.o_bytes.valid.eq(1)
            with m.If(self.o_bytes.ready):
                m.d.sync += [index.eq(index + 1), word.eq(word >> 8)]
                m.next = "STEP"
        with m.State("STEP"):  # the next byte's addresses follow its index by one cycle
            m.next = "NEXT"

    def _write(self, m, host, index, word, addr, register):
        """Receive a payload byte by byte, then answer."""
        header = self.i.payload.header
        request, going = self.mem_write.request, self.mem_write.data
        offset = addr[: (self.memory.word_bytes - 1).bit_length()]
        m.d.comb += [
            request.payload.addr.eq(addr & -self.memory.word_bytes),
            request.payload.last.eq(0),
            going.payload.data.eq(word[24:].replicate(self.memory.word_bytes)),
            going.payload.mask.eq(1 << offset),
        ]
        with m.State("PROGRAM"):
            m.d.comb += [
                host.addr.eq(REGISTER_MAP["PROGRAM_ADDR"].addr),
                host.write_data.eq(header.addr),
                host.write_en.eq(1),
            ]
            m.next = "FETCH"
        with m.State("FETCH"):
            m.next = "TAKE"
            with m.If(index == header.length):
                m.next = "ANSWER"
        with m.State("TAKE"):
            m.d.sync += word.eq(Cat(word[8:], self.payload_data))
            m.next = "ADVANCE"
            with m.If(header.command == Command.WRITE_MEMORY):
                m.next = "OFFER"
            with m.Elif(index[:2] == 3):
                m.next = "REGISTER"
        with m.State("OFFER"):
            m.d.comb += request.valid.eq(1)
            with m.If(request.ready):
                m.next = "GOING"
        with m.State("GOING"):
            m.d.comb += going.valid.eq(1)
            with m.If(going.ready):
                m.next = "WRITTEN"
        with m.State("WRITTEN"), m.If(self.mem_write.written):
            m.next = "ADVANCE"
        with m.State("REGISTER"):
            m.d.comb += [
                host.addr.eq(register),
                host.write_data.eq(word),
                host.write_en.eq(1),
            ]
            with m.If(header.command == Command.LOAD_PROGRAM):
                m.d.comb += host.addr.eq(REGISTER_MAP["PROGRAM_DATA"].addr)
            m.next = "ADVANCE"
        with m.State("ADVANCE"):
            m.d.sync += index.eq(index + 1)
            m.next = "FETCH"
