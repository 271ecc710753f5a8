"""The external memory port as a Wishbone master."""

from pathlib import Path

from amaranth.hdl import Mux, Signal, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.records import Memory
from celosia.arch.tables import read_table
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.component import Component
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort

PORT_MEANINGS = read_table(Path(__file__).with_name("signals.toml"))["wishbone"]
"""Dictionary from each Wishbone signal to its meaning."""


class CycleType(enum.Enum, shape=unsigned(3)):
    """Wishbone cycle types (CTI) of the master; CLASSIC is sent only before the first burst."""

    CLASSIC = 0b000
    INCREMENTING = 0b010
    END = 0b111


def wishbone_members(memory: Memory, addr_width: int) -> dict[str, wiring.Member]:
    """Return a dictionary from the name of each Wishbone master signal to its direction and width.

    A name is, for example, ``wbm_adr_o``. The dictionary has no clock and no reset.
    """
    return {
        "wbm_cyc_o": Out(1),
        "wbm_stb_o": Out(1),
        "wbm_we_o": Out(1),
        "wbm_adr_o": Out(addr_width),
        "wbm_dat_o": Out(memory.width),
        "wbm_sel_o": Out(memory.word_bytes),
        "wbm_cti_o": Out(CycleType),
        "wbm_bte_o": Out(2),
        "wbm_dat_i": In(memory.width),
        "wbm_ack_i": In(1),
        "wbm_err_i": In(1),
    }


class BurstCutter(Component):
    """Cuts a request to external memory into bursts of at most ``longest`` words.

    While ``valid`` is 1, the circuit offers a burst of ``words`` words from byte address ``addr``
    on; ``take`` accepts the burst. ``final`` marks the last burst of a request. A next ``request``
    is accepted when all bursts of the previous request are accepted.
    """

    def __init__(self, memory: Memory, longest: int):
        super().__init__(
            {
                "request": In(MemoryReadPort(memory).members["request"].signature),
                "valid": Out(1),
                "addr": Out(memory.addr_width),
                "words": Out(range(longest + 1)),
                "final": Out(1),
                "take": In(1),
            }
        )

    def circuit(self, m):
        left = Signal(9)
        size = self.longest * self.memory.word_bytes
        m.d.comb += [
            self.valid.eq(left != 0),
            self.final.eq(left <= self.longest),
            self.words.eq(Mux(self.final, left, self.longest)),
            self.request.ready.eq(left == 0),
        ]
        with m.If(self.take):
            m.d.sync += [self.addr.eq(self.addr + size), left.eq(left - self.words)]
        with m.Elif(self.request.valid & self.request.ready):
            m.d.sync += [self.addr.eq(self.request.p.addr), left.eq(self.request.p.last + 1)]


class WishboneBridge(Component):
    """Connects the external memory port to Wishbone B4 as a master, with incrementing bursts.

    A burst on Wishbone has at most ``longest`` words. A burst of n words takes n + 1 cycles or
    more. Bursts of reads and of writes alternate. ``failed`` is 1 for one cycle after each word
    that is answered by ``err``. ``error`` is 1 from the first ``err`` until reset. Raises
    :class:`InputError` if ``longest`` is not from 1 to 256.
    """

    port_meanings = PORT_MEANINGS
    addresses: BusAddress

    def __init__(self, memory: Memory, addresses: BusAddress, longest: int = 32):
        if not 1 <= longest <= 256:
            raise InputError(f"Longest Wishbone burst must be from 1 to 256 words, not {longest}")
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "failed": Out(1),
                "error": Out(1),
                **wishbone_members(memory, addresses.width),
            }
        )

    def circuit(self, m):
        memory, depth = self.memory, 2 * self.longest
        m.submodules.reads = reads = BurstCutter(memory, self.longest)
        m.submodules.writes = writes = BurstCutter(memory, self.longest)
        m.submodules.coming = coming = SyncFIFO(width=memory.width, depth=depth)
        word = self.write.data.p.shape()
        m.submodules.going = going = SyncFIFO(width=word.size, depth=depth)
        for cutter, port in ((reads, self.read), (writes, self.write)):
            m.d.comb += [
                cutter.request.p.eq(port.request.p),
                cutter.request.valid.eq(port.request.valid),
                port.request.ready.eq(cutter.request.ready),
            ]
        m.d.comb += [
            self.read.data.p.eq(coming.r_data),
            self.read.data.valid.eq(coming.r_rdy),
            coming.r_en.eq(self.read.data.ready),
            going.w_data.eq(self.write.data.p),
            going.w_en.eq(self.write.data.valid),
            self.write.data.ready.eq(going.w_rdy),
        ]
        # Words of started reads that have not left yet; and the direction that is next.
        promised = Signal(range(depth + 1))
        leaves = coming.r_rdy & coming.r_en
        m.d.sync += promised.eq(promised + Mux(reads.take, reads.words, 0) - leaves)
        may_read = Signal()
        may_write = Signal()
        m.d.comb += [
            may_read.eq(reads.valid & (promised + reads.words <= depth)),
            may_write.eq(writes.valid & (going.level >= writes.words)),
        ]
        self._bus(m, reads, writes, (may_read, may_write), coming, going)

    def _bus(self, m, reads, writes, may, coming, going):
        """Run one burst after another."""
        may_read, may_write = may
        left = Signal(range(self.longest + 1))  # words after this one
        final = Signal()
        moved = Signal()
        writes_next = Signal()
        word = data.View(self.write.data.p.shape(), going.r_data)
        every = (1 << self.memory.word_bytes) - 1
        m.d.comb += [
            moved.eq(self.wbm_stb_o & (self.wbm_ack_i | self.wbm_err_i)),
            coming.w_data.eq(self.wbm_dat_i),
            coming.w_en.eq(moved & ~self.wbm_we_o),
            writes_next.eq(may_write & (~may_read | ~self.wbm_we_o)),
        ]
        m.d.sync += [
            self.failed.eq(moved & self.wbm_err_i),
            self.error.eq(self.error | (moved & self.wbm_err_i)),
            self.write.written.eq(moved & self.wbm_we_o & final & (left == 0)),
        ]

        def show_word():
            """Offer the next word to write."""
            m.d.comb += going.r_en.eq(1)
            m.d.sync += [self.wbm_dat_o.eq(word.data), self.wbm_sel_o.eq(word.mask)]

        with m.FSM():
            with m.State("IDLE"):
                with m.If(may_read | may_write):
                    m.d.sync += [
                        self.wbm_cyc_o.eq(1),
                        self.wbm_we_o.eq(writes_next),
                        self.wbm_sel_o.eq(every),
                    ]
                    m.next = "BURST"
                with m.If(writes_next):
                    m.d.comb += writes.take.eq(1)
                    self._begin(m, writes, left, final)
                    show_word()
                with m.Elif(may_read):
                    m.d.comb += reads.take.eq(1)
                    self._begin(m, reads, left, final)
            with m.State("BURST"), m.If(moved):
                m.d.sync += [
                    self.wbm_adr_o.eq(self.wbm_adr_o + self.memory.word_bytes),
                    self.wbm_cti_o.eq(self._type(left - 1)),
                    left.eq(left - 1),
                ]
                with m.If(left == 0):
                    m.d.sync += self.wbm_cyc_o.eq(0)
                    m.next = "IDLE"
                with m.Else():
                    with m.If(self.wbm_we_o):
                        show_word()
                    with m.If(self.wbm_err_i):
                        m.d.sync += self.wbm_cyc_o.eq(0)
                        m.next = "AGAIN"
            with m.State("AGAIN"):
                m.d.sync += self.wbm_cyc_o.eq(1)
                m.next = "BURST"
        m.d.comb += self.wbm_stb_o.eq(self.wbm_cyc_o)

    def _begin(self, m, cutter, left, final):
        """Put the first word of a burst on the bus."""
        m.d.sync += [
            self.wbm_adr_o.eq(self.addresses.of(cutter.addr)),
            self.wbm_cti_o.eq(self._type(cutter.words - 1)),
            left.eq(cutter.words - 1),
            final.eq(cutter.final),
        ]

    def _type(self, left):
        """Return the cycle type of a word followed by ``left`` words."""
        return Mux(left == 0, CycleType.END, CycleType.INCREMENTING)
