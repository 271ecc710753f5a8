"""External memory made of block RAM, for boards that have no memory chip."""

from amaranth.hdl import Signal
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.errors import InputError
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.byte_ram import ByteRam
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort, burst_layout
from celosia.hdl.stream.skid import Skid

READ_AHEAD = 4
"""Words that are read before the first is consumed, a power of two; 4 allow one word per cycle."""


class OnchipMemory(Component):
    """A memory of ``size`` bytes in block RAM, as the memory side of the external memory port.

    - Throughput: one word per cycle. Writes have priority.
    - ``read``: a burst's first word follows the request by four cycles.
    - ``write``: ``written`` follows a burst's last word by two cycles.
    - ``failed``: 1 after each access to a word past the memory's end. Such a word is not written; a
      read returns an undefined word.

    Raises :class:`InputError` if ``size`` is no multiple of a word's size, is less than two words,
    or is more than the port can address.
    """

    def __init__(self, memory: Memory, size: int):
        if size % memory.word_bytes or not 2 * memory.word_bytes <= size <= 1 << memory.addr_width:
            raise InputError(
                f"On-chip memory must have at least two words of {memory.word_bytes} bytes and at "
                f"most 2**mem_addr_width = {1 << memory.addr_width} bytes, not {size}"
            )
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "failed": Out(1),
            }
        )

    def circuit(self, m):
        memory, depth = self.memory, self.size // self.memory.word_bytes
        m.submodules.ram = ram = ByteRam(memory.width, depth)
        m.submodules.words = words = SyncFIFO(width=memory.width, depth=READ_AHEAD)
        m.submodules.waiting = waiting = Skid(burst_layout(memory))
        connect(m, flipped(self.read.request), waiting.i)
        writes, reads = Signal(), Signal()
        writing, write_word, write_last = self._burst(m, self.write.request, writes)
        asked, read_word, read_last = self._burst(m, waiting.o, reads)
        m.d.comb += [
            self.write.request.ready.eq(~writing),
            waiting.o.ready.eq(~asked | (reads & read_last)),
        ]

        # One access per cycle; a read only if there will be room for its word.
        promised = Signal(range(READ_AHEAD + 1))
        m.d.comb += [
            self.write.data.ready.eq(writing),
            writes.eq(self.write.data.valid & writing),
            reads.eq(asked & ~writes & ~promised[-1]),
        ]
        m.d.sync += promised.eq(promised + reads - (words.r_rdy & words.r_en))

        # The access passes a register, because memories are far from all other units.
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
            ram.mask.eq(word.mask & writes.replicate(memory.word_bytes)),
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

    def _burst(self, m, request, moves):
        """Accept requests; return whether there is a burst, its word, and whether it is the last.

        All three are registers. ``moves`` says that the word is accessed in this cycle.
        """
        word = Signal(self.memory.addr_width - exact_log2(self.memory.word_bytes))
        left = Signal(8)  # after this one
        active = Signal()
        last = Signal()
        with m.If(~active | moves):
            # The input is loaded whenever no burst is left, even without a request.
            with m.If(~active | last):
                m.d.sync += [
                    word.eq(request.p.addr >> exact_log2(self.memory.word_bytes)),
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
