"""Conversion between words of the memory port and blocks of LiteDRAM's native port."""

from amaranth.hdl import Const, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.ddr3 import Ddr3Chip
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort, burst_layout
from celosia.hdl.stream.skid import Skid

READ_AHEAD = 16
"""Largest number of requested blocks that still have words to output."""

_WRITTEN_AHEAD = 4  # blocks


def block_layout(memory: Memory, chip: Ddr3Chip) -> data.StructLayout:
    """Return the layout of a request for a block, which is the data of one access to the DDR3 chip.

    ``addr`` is the byte address divided by the number of bytes of a block. ``final`` is 1 for the
    last block of a burst.
    """
    return data.StructLayout({"addr": memory.addr_width - exact_log2(chip.block_bytes), "final": 1})


class _Burst:
    """The position in a burst: its current word, and the number of words that follow."""

    def __init__(self, memory: Memory, chip: Ddr3Chip):
        self.shift = exact_log2(memory.word_bytes)
        self.inner = exact_log2(chip.block_bytes) - self.shift
        self.word = Signal(memory.addr_width - self.shift)
        self.left = Signal(8)
        self.active = Signal()

    def take(self, request):
        """Return the assignments that begin a burst."""
        return [
            self.word.eq(request.p.addr >> self.shift),
            self.left.eq(request.p.last),
            self.active.eq(1),
        ]

    @property
    def block(self):
        """The current word's block."""
        return self.word >> self.inner

    @property
    def index(self):
        """The current word's position in its block."""
        return self.word[: self.inner] if self.inner else Const(0, 1)


class BlockReader(Component):
    """Converts read bursts to requests for blocks, each the data of one access to the DDR3 chip.

    - ``port``: the bursts and their words, one per cycle.
    - ``o_block``: a block's address, one per cycle, at most ``READ_AHEAD`` blocks ahead.
    - ``i``: the next block, if ``i_valid`` is 1.
    """

    def __init__(self, memory: Memory, chip: Ddr3Chip):
        super().__init__(
            {
                "port": In(MemoryReadPort(memory)),
                "o_block": Out(stream.Signature(block_layout(memory, chip))),
                "i_valid": In(1),
                "i": In(8 * chip.block_bytes),
            }
        )

    def circuit(self, m):
        memory, chip = self.memory, self.chip
        burst = _Burst(memory, chip)
        ratio = 1 << burst.inner
        places = range(max(2, ratio))
        part = data.StructLayout({"first": places, "last": places})
        m.submodules.waiting = waiting = Skid(burst_layout(memory))
        m.submodules.blocks = blocks = SyncFIFOBuffered(
            width=8 * chip.block_bytes, depth=READ_AHEAD
        )
        m.submodules.parts = parts = SyncFIFO(width=part.size, depth=READ_AHEAD)
        connect(m, flipped(self.port.request), waiting.i)

        # The blocks of a burst, each with the range of its words that is read.
        asked, taken, room = Signal(), Signal(), Signal(init=1)
        promised, after = Signal(range(READ_AHEAD + 1)), Signal(range(READ_AHEAD + 2))
        wanted = data.View(part, parts.w_data)
        rest = Signal(9)  # words of this burst from the block's first place on, but one
        m.d.comb += [
            rest.eq(burst.left + burst.index),
            self.o_block.valid.eq(burst.active & room),
            self.o_block.p.addr.eq(burst.block),
            self.o_block.p.final.eq(rest < ratio),
            asked.eq(self.o_block.valid & self.o_block.ready),
            wanted.first.eq(burst.index),
            wanted.last.eq(Mux(self.o_block.p.final, rest, ratio - 1)),
            parts.w_en.eq(asked),
            waiting.o.ready.eq(~burst.active | (asked & self.o_block.p.final)),
            after.eq(promised + asked - taken),
        ]
        m.d.sync += [promised.eq(after), room.eq(after < READ_AHEAD)]
        with m.If(waiting.o.ready):
            m.d.sync += burst.take(waiting.o)
            m.d.sync += burst.active.eq(waiting.o.valid)
        with m.Elif(asked):
            m.d.sync += [
                burst.word.eq((burst.block + 1) << burst.inner),
                burst.left.eq(rest - ratio),
            ]

        # Their words. The range of a block is known before the block arrives.
        index, begun = Signal(places), Signal()
        current = data.View(part, parts.r_data)
        place = Mux(begun, index, current.first)
        moves = self.port.data.valid & self.port.data.ready
        m.d.comb += [
            blocks.w_en.eq(self.i_valid),
            blocks.w_data.eq(self.i),
            self.port.data.valid.eq(blocks.r_rdy),
            self.port.data.p.eq(blocks.r_data.word_select(place, memory.width)),
            taken.eq(moves & (place == current.last)),
            blocks.r_en.eq(taken),
            parts.r_en.eq(taken),
        ]
        with m.If(moves):
            m.d.sync += [index.eq(place + 1), begun.eq(~taken)]


class BlockWriter(Component):
    """Joins the words of write bursts into blocks, each the data of one access to the DDR3 chip.

    - ``port``: write bursts, one word per cycle.
    - ``o_block``: the address of each block.
    - ``data``, ``mask``: the oldest block, and a 1 for each byte to write.
    - ``take``: removes the oldest block. The block's address must have been accepted before.
    - ``done``: must be 1 when the last block of a burst is accepted; drives ``port.written``.
    """

    def __init__(self, memory: Memory, chip: Ddr3Chip):
        super().__init__(
            {
                "port": In(MemoryWritePort(memory)),
                "o_block": Out(stream.Signature(block_layout(memory, chip))),
                "data": Out(8 * chip.block_bytes),
                "mask": Out(chip.block_bytes),
                "take": In(1),
                "done": In(1),
            }
        )

    def circuit(self, m):
        memory, chip = self.memory, self.chip
        burst = _Burst(memory, chip)
        ratio = 1 << burst.inner
        layout = data.StructLayout({"data": 8 * chip.block_bytes, "mask": chip.block_bytes})
        m.submodules.blocks = blocks = SyncFIFO(width=layout.size, depth=_WRITTEN_AHEAD)
        m.submodules.commands = commands = SyncFIFO(
            width=self.o_block.p.shape().size, depth=_WRITTEN_AHEAD
        )
        port, command = self.port, data.View(self.o_block.p.shape(), commands.w_data)
        read = data.View(layout, blocks.r_data)
        held, block = Signal(layout), Signal(layout)  # received words, and these with this one
        moves, last, whole = Signal(), Signal(), Signal()
        m.d.comb += [
            port.request.ready.eq(~burst.active),
            port.data.ready.eq(burst.active & blocks.w_rdy & commands.w_rdy),
            moves.eq(port.data.valid & port.data.ready),
            last.eq(burst.left == 0),
            whole.eq(moves & (last | (burst.index == ratio - 1))),
            block.eq(held),
            command.addr.eq(burst.block),
            command.final.eq(last),
            blocks.w_data.eq(block),
            blocks.w_en.eq(whole),
            commands.w_en.eq(whole),
            commands.r_en.eq(self.o_block.ready),
            self.o_block.valid.eq(commands.r_rdy),
            self.o_block.p.eq(commands.r_data),
            self.data.eq(read.data),
            self.mask.eq(read.mask),
            blocks.r_en.eq(self.take),
            port.written.eq(self.done),
        ]
        with m.Switch(burst.index):
            for index in range(ratio):
                with m.Case(index):
                    m.d.comb += [
                        block.data.word_select(index, memory.width).eq(port.data.p.data),
                        block.mask.word_select(index, memory.word_bytes).eq(port.data.p.mask),
                    ]
        with m.If(moves):
            m.d.sync += [
                held.eq(block),
                burst.word.eq(burst.word + 1),
                burst.left.eq(burst.left - 1),
                burst.active.eq(~last),
            ]
            with m.If(whole):
                m.d.sync += held.mask.eq(0)
        with m.Elif(port.request.valid & port.request.ready):
            m.d.sync += burst.take(port.request)
