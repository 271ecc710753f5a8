"""External memory on the chip, for boards that have no other."""

from amaranth.hdl import Module, Signal
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.hdl.component import Component
from celosia.hdl.memory.byte_ram import ByteRam
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort, burst_layout
from celosia.hdl.stream.skid import Skid

READ_AHEAD = 4
"""Words that are read before the first one is taken, so that one can be taken in every cycle (a
power of two)."""


class OnchipMemory(Component):
    """A memory of ``size`` bytes behind the external memory port, seen from the memory.

    One word moves per cycle, a write before a read; the first word of a read is there four cycles
    after its request, and ``written`` two cycles after a burst's last word. A request to read may
    wait for the end of the burst before, and follows it without a gap; a written burst keeps its
    half of the port until its last word, and one cycle. ``failed`` is 1 for one cycle for each word
    past the end, which is not written, or reads as some other word.

    Raises :class:`InputError` where the size is not one of whole words within the address.
    """

    def __init__(self, config: Config, size: int):
        if (
            size % config.mem_bytes
            or not 2 * config.mem_bytes <= size <= 1 << config.memory.addr_width
        ):
            raise InputError(
                f"On-chip memory must have at least two words of {config.mem_bytes} bytes and at "
                f"most 2**mem_addr_width = {1 << config.memory.addr_width} bytes, not {size}"
            )
        self.config = config
        self.size = size
        super().__init__(
            {
                "read": In(MemoryReadPort(config)),
                "write": In(MemoryWritePort(config)),
                "failed": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        config, depth = self.config, self.size // self.config.mem_bytes
        m.submodules.ram = ram = ByteRam(config.memory.width, depth)
        m.submodules.words = words = SyncFIFO(width=config.memory.width, depth=READ_AHEAD)
        m.submodules.waiting = waiting = Skid(burst_layout(config))
        connect(m, flipped(self.read.request), waiting.i)
        writes, reads = Signal(), Signal()
        writing, write_word, write_last = self._burst(m, self.write.request, writes)
        asked, read_word, read_last = self._burst(m, waiting.o, reads)
        m.d.comb += [
            self.write.request.ready.eq(~writing),
            waiting.o.ready.eq(~asked | (reads & read_last)),
        ]

        # One access a cycle; a read only where there will be room for its word.
        promised = Signal(range(READ_AHEAD + 1))
        m.d.comb += [
            self.write.data.ready.eq(writing),
            writes.eq(self.write.data.valid & writing),
            reads.eq(asked & ~writes & ~promised[-1]),
        ]
        m.d.sync += promised.eq(promised + reads - (words.r_rdy & words.r_en))

        # The access, a register later, as memories are far from everything.
        accessed, reading, inside, last, coming = (Signal() for _ in range(5))
        word = self.write.data.payload
        with m.If(writes):
            m.d.sync += [ram.addr.eq(write_word), inside.eq(write_word < depth)]
        with m.Else():
            m.d.sync += [ram.addr.eq(read_word), inside.eq(read_word < depth)]
        m.d.sync += [
            accessed.eq(writes | reads),
            reading.eq(reads),
            last.eq(writes & write_last),
            ram.write_data.eq(word.data),
            ram.mask.eq(word.mask & writes.replicate(config.mem_bytes)),
            coming.eq(reading),
            self.write.written.eq(last),
            self.failed.eq(accessed & ~inside),
        ]
        m.d.comb += [
            ram.en.eq(accessed & inside),
            words.w_data.eq(ram.read_data),
            words.w_en.eq(coming),
            self.read.data.payload.eq(words.r_data),
            self.read.data.valid.eq(words.r_rdy),
            words.r_en.eq(self.read.data.ready),
        ]
        return m

    def _burst(self, m, request, moves):
        """Take requests; return whether there is a burst, its word, and whether that is the last.

        All three are registers. ``moves`` says that the word is accessed in this cycle.
        """
        word = Signal(self.config.memory.addr_width - exact_log2(self.config.mem_bytes))
        left = Signal(8)  # after this one
        active = Signal()
        last = Signal()
        with m.If(~active | moves):
            # What comes is looked at where there is nothing left, whether it is a request or not.
            with m.If(~active | last):
                m.d.sync += [
                    word.eq(request.p.addr >> exact_log2(self.config.mem_bytes)),
                    left.eq(request.p.last),
                    last.eq(request.p.last == 0),
                ]
            with m.Else():
                m.d.sync += [word.eq(word + 1), left.eq(left - 1), last.eq(left == 1)]
        with m.If(request.ready):
            m.d.sync += active.eq(request.valid)
        with m.Elif(moves & last):
            m.d.sync += active.eq(0)
        return active, word, last
