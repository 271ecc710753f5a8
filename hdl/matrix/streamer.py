"""Streams activations through the array and its sums into the accumulators."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import COUNT_WIDTH, Engine
from hdl.component import Component
from hdl.matrix.array import part_member
from hdl.matrix.transposer import Transposer
from hdl.matrix.weights import job_layout
from hdl.ports import ReadPort
from hdl.stream.pipeline import delay
from hdl.stream.slice import RegisterSlice


def vector_layout(config: Config) -> data.StructLayout:
    """Return what goes with a vector of activations, or, where it is not ``valid``, in its place.

    ``last`` and ``push`` tell of a command that is complete once this has passed.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "acc_addr": unsigned(config.acc_addr_width),
            "slot": range(config.weight_depth),
            "zero": signed(config.operand_width),
            "k": range(config.rows + 1),
            "n": range(config.cols + 1),
            "last": 1,
            "push": unsigned(len(Engine)),
            **part_member(config),
        }
    )


class ActivationStreamer(Component):
    """Reads the activations of each job's tile, row by row, and sends them on.

    One vector a cycle, in the order of the jobs, which cannot be refused: ``elements`` as read from
    ``a``, and what ``note`` says of them. Transposed tiles are read in blocks of ``rows``
    by ``rows``, which pass through a transposer. ``freed`` gives a job's slot back as soon as
    weights that are asked for from the next cycle on cannot come too early, once for each job that
    is not empty. ``idle`` where no
    job is left. ``sends`` is 1 in as many cycles as there are vectors: as one is asked for or,
    transposed, sent on. With ``registered`` what is asked for waits in a register first.
    A line is in the transposer ``transposed_latency`` cycles after it was granted. Where
    weights have parts, a job's vectors come once for each.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(job_layout(config))),
                "a": Out(ReadPort(config)),
                "elements": Out(data.ArrayLayout(8, config.rows)),
                "note": Out(vector_layout(config)),
                "freed": Out(1),
                "idle": Out(1),
                "sends": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        config, job = self.config, self.i.p
        asked = stream.Signature(line_layout(config)).create()
        m.d.comb += [
            asked.p.note.slot.eq(job.tile.slot),
            asked.p.note.zero.eq(job.a_zero),
            asked.p.note.k.eq(job.tile.k),
            asked.p.note.n.eq(job.tile.n),
            asked.p.note.push.eq(job.push),
        ]
        line = asked
        if config.registered:
            m.submodules.stage = stage = RegisterSlice(asked.p.shape())
            wiring.connect(m, asked, stage.i)
            line = stage.o
        request, granted, straight = self.a.request, Signal(), Signal()
        m.d.comb += [
            request.valid.eq(line.valid),
            request.p.eq(line.p.addr),
            line.ready.eq(request.ready),
            granted.eq(line.valid & line.ready),
            straight.eq(granted),
        ]

        read = Signal.like(self.elements)
        for row in range(config.rows):
            m.d.comb += read[row].eq(self.a.data[row])
        note = Signal(vector_layout(config))
        late = data.View(note.shape(), delay(m, note.as_value(), config.sram_latency))
        m.d.comb += [
            note.eq(line.p.note),
            note.valid.eq(straight),
            note.last.eq(straight & line.p.note.last),
            self.sends.eq(straight),
            self.freed.eq(straight & line.p.frees),
            self.elements.eq(read),
            self.note.eq(late),
        ]
        run = self.i.valid & ~job.tile.empty
        whole = Const(1, 1)
        passed = Signal()  # All vectors of a job have come with a part.
        if config.passes > 1:
            place = Signal(range(config.passes))
            whole = place == job.parts
            with m.If(passed):
                m.d.sync += place.eq(Mux(whole, 0, place + 1))
            m.d.comb += asked.p.note.part.place.eq(place)
        if config.parted:
            m.d.comb += asked.p.note.part.last.eq(whole)
        if config.slot_scales:
            m.d.comb += asked.p.note.scaled.eq(job.scaled & job.paired)
        if config.packed_slots:
            m.d.comb += asked.p.note.part.alone.eq(job.paired)
            with m.If(job.paired):
                m.d.comb += asked.p.note.part.place.eq(job.tile.half)
        clear = Signal()
        if config.a_transpose:
            m.d.comb += straight.eq(granted & ~line.p.transposed)
            room = Signal()
            self._ask_transposed(m, job, asked, run & job.transpose, room, whole, passed)
            self._transpose(m, asked, line.p, granted & line.p.transposed, read, room, clear)
            run = run & ~job.transpose
        else:
            m.d.comb += clear.eq(1)
        self._ask_straight(m, job, asked, run & clear, whole, passed)
        m.d.comb += self.idle.eq(~self.i.valid & clear & ~line.valid)
        # What has no vectors waits for those before it.
        with m.If(self.i.valid & job.tile.empty & clear & ~line.valid):
            m.d.comb += [
                note.last.eq(job.tile.last),
                note.push.eq(job.push),
                self.i.ready.eq(1),
            ]
        return m

    def _ask_straight(self, m, job, asked, run, whole, passed):
        """Ask for one row after the other.

        What the next row needs is computed with the one before: an address and a comparison must
        not stand before what other engines wait for.
        """
        row = Signal(COUNT_WIDTH)
        begun = Signal()
        addr = Signal(self.config.sp_addr_width)
        following = Signal.like(addr)
        last = Signal()
        final = Signal()
        taken = Signal()
        m.d.comb += [
            addr.eq(Mux(begun, following, job.tile.a_addr)),
            final.eq(Mux(begun, last, job.tile.vector)),
            taken.eq(run & asked.ready),
        ]
        with m.If(run):
            m.d.comb += [
                asked.valid.eq(1),
                asked.p.addr.eq(addr),
                asked.p.note.acc_addr.eq(job.tile.acc_addr + row),
                asked.p.note.last.eq(final & whole & job.tile.last),
                asked.p.frees.eq(final & whole),
                self.i.ready.eq(asked.ready & final & whole),
            ]
        with m.If(taken & final):
            m.d.comb += passed.eq(1)
            m.d.sync += [row.eq(0), begun.eq(0)]
        with m.Elif(taken):
            m.d.sync += [
                row.eq(row + 1),
                begun.eq(1),
                following.eq(addr + job.a_stride),
                last.eq(row + 2 == job.m),
            ]

    def _ask_transposed(self, m, job, asked, run, room, whole, passed):
        """Ask for the lines of one block after the other, where there is ``room`` for it."""
        rows = self.config.rows
        index = Signal(range(rows + 1))
        begun = Signal()
        addr = Signal(self.config.sp_addr_width)
        following = Signal.like(addr)
        # Of the job's first block, and of those behind it.
        later = Signal()
        begin, left = Signal.like(addr), Signal(COUNT_WIDTH)
        begin_later, left_later = Signal.like(addr), Signal(COUNT_WIDTH)
        final_later = Signal()
        done = Signal(COUNT_WIDTH)
        filling = Signal()
        line_last = Signal()
        final = Signal()
        taken = Signal()
        m.d.comb += [
            addr.eq(Mux(begun, following, job.tile.a_addr)),
            begin.eq(Mux(later, begin_later, job.tile.a_addr)),
            left.eq(Mux(later, left_later, job.m)),
            line_last.eq(index + 1 == job.tile.k),
            final.eq(Mux(later, final_later, job.tile.block)),
            taken.eq(asked.valid & asked.ready & asked.p.transposed),
        ]
        with m.If(run):
            m.d.comb += [
                asked.valid.eq((index != 0) | room),
                asked.p.transposed.eq(1),
                asked.p.addr.eq(addr),
                asked.p.note.acc_addr.eq(job.tile.acc_addr + done),
                asked.p.note.last.eq(final & whole & job.tile.last),
                asked.p.frees.eq(final & whole),
                asked.p.count.eq(Mux(final, left, rows)),
                asked.p.index.eq(index),
                asked.p.filling.eq(filling),
                asked.p.line_last.eq(line_last),
                self.i.ready.eq(taken & line_last & final & whole),
            ]
        with m.If(taken & line_last):
            m.d.comb += passed.eq(final)
            m.d.sync += [
                index.eq(0),
                begun.eq(~final),
                later.eq(~final),
                following.eq(begin + rows),
                begin_later.eq(begin + rows),
                left_later.eq(left - rows),
                final_later.eq(left <= 2 * rows),
                done.eq(Mux(final, 0, done + rows)),
                filling.eq(~filling),
            ]
        with m.Elif(taken):
            m.d.sync += [
                index.eq(index + 1),
                begun.eq(1),
                following.eq(addr + job.a_stride),
            ]

    def _transpose(self, m, asked, line, granted, read, room, clear):
        """Fill one block while the other is sent on; tell where there is room, or no block."""
        rows, latency = self.config.rows, self.config.sram_latency
        until = transposed_latency(self.config)
        m.submodules.transposer = transposer = Transposer(rows, 8)
        block = Signal(block_layout(self.config))
        complete = Signal()
        m.d.comb += [
            transposer.write_en.eq(delay(m, granted, until)),
            transposer.write_row.eq(delay(m, line.index, until)),
            transposer.write_block.eq(delay(m, line.filling, until)),
            transposer.write_data.eq(delay(m, read, until - latency)),
            block.note.eq(line.note),
            block.note.valid.eq(1),
            block.last.eq(line.count - 1),
            # Lines for it are asked for again before it is empty, by as much as they take to come.
            block.spare.eq(_ahead(line.count, until + 1)),
            # A slot is free for lines that are asked for as late as the last of it would be.
            block.free.eq(_ahead(line.count, latency)),
            block.frees.eq(line.frees),
            complete.eq(granted & line.line_last),
        ]

        # A block is sent on as its last line comes. What stands in the queue is compared with the
        # column as it is: the queue is read in the same cycle.
        m.submodules.ready = ready = SyncFIFO(width=block.shape().size, depth=3)
        coming = Signal(until - 1)
        m.d.sync += coming.eq(Cat(complete, coming))
        m.d.comb += [
            ready.w_en.eq(coming[-1]),
            ready.w_data.eq(delay(m, block.as_value(), until - 1)),
        ]
        head = data.View(block.shape(), ready.r_data)
        blocks = Signal(range(3))
        column = Signal(range(rows))
        sending = Signal()
        ends = Signal()
        m.d.comb += [
            room.eq(blocks != 2),
            ends.eq(ready.r_rdy & (column == head.last)),
            ready.r_en.eq(ends),
            transposer.read_block.eq(sending),
            transposer.read_column.eq(column),
            clear.eq((blocks == 0) & ~ready.r_rdy & ~coming.any()),
        ]
        released = Signal()
        m.d.comb += released.eq(ready.r_rdy & (column == head.spare))
        begins = asked.valid & asked.ready & asked.p.transposed & (asked.p.index == 0)
        m.d.sync += blocks.eq(blocks + begins - released)
        comes = Signal()
        noted = Signal(vector_layout(self.config))
        m.d.sync += comes.eq(ready.r_rdy)
        with m.If(ready.r_rdy):
            m.d.comb += [self.sends.eq(1), self.freed.eq(head.frees & (column == head.free))]
            m.d.sync += [
                noted.eq(head.note),
                noted.acc_addr.eq(head.note.acc_addr + column),
                noted.last.eq(head.note.last & ends),
                column.eq(Mux(ends, 0, column + 1)),
            ]
        with m.If(comes):
            m.d.comb += [self.elements.eq(transposer.read_data), self.note.eq(noted)]
        with m.If(ends):
            m.d.sync += sending.eq(~sending)


def transposed_latency(config: Config) -> int:
    """Return the cycles until a line is written to the transposer.

    With ``registered`` there is a register before it, unless blocks are so short that lines would
    come too late for the next one.
    """
    return config.sram_latency + (config.registered and config.rows > config.sram_latency + 1)


def line_layout(config: Config) -> data.StructLayout:
    """Return what is asked for: an address, and what goes with the line that is read there.

    ``frees`` marks a job's last vector or, of lines that are ``transposed`` into columns, its last
    block. Such a line is line ``index`` of the block that is ``filling``; ``line_last`` completes
    the block, of ``count`` vectors.
    """
    members = {
        "addr": unsigned(config.sp_addr_width),
        "note": vector_layout(config),
        "frees": 1,
    }
    if config.a_transpose:
        members |= {
            "transposed": 1,
            "index": range(config.rows + 1),
            "filling": 1,
            "line_last": 1,
            "count": range(config.rows + 1),
        }
    return data.StructLayout(members)


def block_layout(config: Config) -> data.StructLayout:
    """Return a block in the transposer: its first vector, and whether it frees a slot.

    ``last`` is the column that it ends with, ``spare`` the one at which lines for another may be
    asked for, ``free`` the one at which it frees its slot if it does.
    """
    column = range(config.rows)
    return data.StructLayout(
        {"note": vector_layout(config), "last": column, "spare": column, "free": column, "frees": 1}
    )


def _ahead(count, cycles: int):
    """Return the column so many cycles before the end of a block of ``count``, or its first."""
    return Mux(count > cycles, count - cycles, 0)
