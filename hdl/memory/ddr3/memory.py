"""The external memory port on DDR3 SDRAM, with LiteDRAM's core as the controller."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.ddr3 import Ddr3Start
from celosia.arch.errors import InputError
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.chips import check_holds
from celosia.hdl.memory.ddr3.blocks import BlockReader, BlockWriter
from celosia.hdl.memory.ddr3.pins import CorePorts
from celosia.hdl.memory.ddr3.starter import Starter
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort


class Ddr3Memory(Component):
    """The memory side of the external memory port, on a DDR3 SDRAM chip with LiteDRAM's core.

    - ``written``: 1 if the core accepts the last block of a write burst. Later reads return the new
      data.
    - ``ready``: 1 after the initialization of the chip. Before, no word is transferred.
    - ``failed``: 1 with ``ready`` if the initialization failed.

    A block is the data of one access to the chip. Raises :class:`InputError` if a memory word is
    larger than a block, or the memory exceeds the chip.
    """

    def __init__(self, memory: Memory, start: Ddr3Start):
        chip = start.chip
        if memory.word_bytes > chip.block_bytes:
            raise InputError(
                f"mem_width must be at most {8 * chip.block_bytes}, a block of {chip.name}, not "
                f"{memory.width}"
            )
        check_holds(chip, memory)
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "ready": Out(1),
                "failed": Out(1),
                "pins": Out(CorePorts(chip)),
            }
        )

    def circuit(self, m):
        pins, chip = self.pins, self.start.chip
        m.submodules.starter = starter = Starter(self.start)
        m.submodules.reader = reader = BlockReader(self.memory, chip)
        m.submodules.writer = writer = BlockWriter(self.memory, chip)
        connect(m, flipped(self.read), reader.port)
        connect(m, flipped(self.write), writer.port)
        m.d.comb += [
            self.ready.eq(starter.over),
            self.failed.eq(starter.over & starter.failed),
            *(getattr(pins, f"ctrl_{n}").eq(getattr(starter, n)) for n in ("cyc", "stb", "we")),
            pins.ctrl_adr.eq(starter.adr),
            pins.ctrl_dat_w.eq(starter.dat_w),
            starter.dat_r.eq(pins.ctrl_dat_r),
            starter.ack.eq(pins.ctrl_ack),
        ]

        # One burst at a time; the other direction is next if it waits.
        writes, within = Signal(), Signal()
        offered = [each.o_block.valid for each in (reader, writer)]
        turn = Signal()  # of writes
        m.d.comb += turn.eq(Mux(within, writes, offered[1] & (~writes | ~offered[0])))
        chosen = Signal(writer.o_block.p.shape())
        moves = Signal()
        m.d.comb += [
            chosen.eq(Mux(turn, writer.o_block.p, reader.o_block.p)),
            pins.cmd_valid.eq(starter.over & Mux(turn, offered[1], offered[0])),
            pins.cmd_we.eq(turn),
            pins.cmd_addr.eq(chosen.addr),
            moves.eq(pins.cmd_valid & pins.cmd_ready),
            reader.o_block.ready.eq(moves & ~turn),
            writer.o_block.ready.eq(moves & turn),
            writer.done.eq(moves & turn & chosen.final),
        ]
        with m.If(pins.cmd_valid):
            m.d.sync += [writes.eq(turn), within.eq(~(moves & chosen.final))]

        m.d.comb += [
            pins.wdata_valid.eq(1),
            pins.wdata_data.eq(writer.data),
            pins.wdata_we.eq(writer.mask),
            writer.take.eq(pins.wdata_ready),
            reader.i_valid.eq(pins.rdata_valid),
            reader.i.eq(pins.rdata_data),
        ]
