"""Brings the weights of each tile into the array, up to one tile ahead of the products."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.config import Config
from celosia.arch.formats import PAIRED_BITS
from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import enter, is_far, slots_of, strobes, weight_layout
from celosia.hdl.matrix.blocks import BlockEncoder
from celosia.hdl.matrix.decoder import DecodeSteps, WeightDecoder, step_layout
from celosia.hdl.matrix.slots import SlotGuard
from celosia.hdl.matrix.tiles import (
    TileWalker,
    format_of,
    grouped,
    in_blocks,
    lower_bits,
    one_of_pair,
    paired,
    stacked,
    tile_layout,
)
from celosia.hdl.matrix.wide import byte_members, bytes_of, flag_of, rounded
from celosia.hdl.ports import ReadPort, command_layout
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import KEPT, delay, spread


def job_layout(config: Config) -> data.StructLayout:
    """Return one tile for the streamer, with what it needs of its command.

    ``parts`` is how many passes its vectors take behind the first, which are INT16 where ``wide``;
    ``paired`` weights are in a slot with another tile's.
    """
    return data.StructLayout(
        {
            "tile": tile_layout(config),
            "a_stride": unsigned(config.sp_addr_width),
            "a_zero": signed(config.array.operand_width),
            "m": unsigned(COUNT_WIDTH),
            "push": unsigned(len(Engine)),
            **({"parts": range(config.vector_passes)} if config.vector_passes > 1 else {}),
            **({"wide": 1} if config.array.wide else {}),
            **({"paired": 1} if config.paired else {}),
            **({"lower": 1} if config.low_rows else {}),
            **({"block": 1} if config.block_exponents else {}),
            **({"scaled": 1} if config.slot_scales else {}),
        }
    )


class WeightFetcher(Component):
    """Takes MATMUL and PRELOAD commands and hands their tiles on as their weights come.

    A tile's weights are read from ``b`` line by line, rows of B or, transposed, its columns, and
    leave on ``o_weights`` without their zero point: into the slots of the ring in turn, or for
    PRELOAD into the slot named. A tile takes as many cycles as it has rows; transposed, ``cols``
    cycles; the next one follows without a pause. Its columns past the end of B become zero. With
    ``append`` it takes as many as there are lines to write in it, of pairs twice, of blocks three
    times as many. A resident MATMUL reads nothing.
    A tile's lines wait until no product needs its slot, which ``freed`` tells
    (:class:`SlotGuard`). A command is taken when its last tile is being read, so the next
    one's weights load under its products.

    ``o`` brings a tile when the first of its lines has been asked for. Activations that are asked
    for from the next cycle on (by ``weight_latency - sram_latency`` cycles later) find every weight
    in place, as row r of the array sees them r cycles later than row 0, and line r comes r cycles
    after line 0. This rests on ``b``: **once it has
    taken the first line of a tile it must take the others without a wait.** Before a tile it may
    make the engine wait as long as it likes. A tree has no such skew: with it, ``o`` brings a tile
    when the last of its lines has been asked for. ``placed`` says that a tile has no lines to wait
    for, so that its activations may be asked for at once.

    A line in a weight format needs new bytes from ``b`` only now and then; a group's scales are
    read in a cycle of their own, before the tile's first line. With formats all weights come a
    cycle later than said above.
    """

    def __init__(self, config: Config):
        self.config = config
        members = {
            "i": In(stream.Signature(command_layout(Engine.MATRIX))),
            "b": Out(ReadPort(config)),
            "o": Out(stream.Signature(job_layout(config))),
            "freed": In(1),
            "named": Out(1),
            "placed": Out(1),
            "o_weights": Out(Flow(weight_layout(config))),
        }
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        m.submodules.tiles = tiles = TileWalker(config)
        connect(m, flipped(self.i), tiles.i)
        cmd = tiles.command

        job = self.o.p
        m.d.comb += [
            self.named.eq(tiles.o.valid),
            self.placed.eq(~tiles.o.p.loads),
            job.tile.eq(tiles.o.p),
            job.a_stride.eq(cmd.a_stride),
            job.a_zero.eq(cmd.a_zero),
            job.m.eq(cmd.m),
            job.push.eq(cmd.push),
        ]
        alone = one_of_pair(config, cmd)
        if config.paired:
            m.d.comb += job.paired.eq((paired(cmd) if config.packed_slots else 0) | alone)
        if config.low_rows:
            m.d.comb += job.lower.eq(lower_bits(config, cmd))
        if config.block_exponents:
            m.d.comb += job.block.eq(in_blocks(config, cmd))
        if config.slot_scales:
            m.d.comb += job.scaled.eq(grouped(cmd))
        if config.passes > 1:
            m.d.comb += job.parts.eq(config.passes - 1)
            with m.If(~grouped(cmd) | paired(cmd)), m.Switch(format_of(cmd)):
                for index, form in enumerate(config.formats):
                    with m.Case(index + 1):
                        m.d.comb += job.parts.eq(form.passes(config.array.pass_width) - 1)
            with m.If(alone):
                m.d.comb += job.parts.eq(0)
        if config.array.wide:
            wide = flag_of(cmd, "a_wide")
            m.d.comb += [job.wide.eq(wide), job.parts.eq(wide & ~flag_of(cmd, "b_low"))]
        self._load(m, cmd, tiles, job)
        return m

    def _load(self, m, cmd, tiles, job):
        """Ask for a tile's lines, and hand the tile on with the first."""
        config, tile = self.config, tiles.o.p
        column, loads = tile.column, tile.loads
        begun = Signal()
        following = Signal.like(tile.line)
        index = Signal.like(tile.line)
        base = Signal(config.sp_addr_width)
        offset = Signal(config.sp_addr_width)
        behind = Signal(config.sp_addr_width)
        fill = Signal()
        final = Signal()
        following_final = Signal()
        may = Signal()
        handed = final if config.array.kind == "tree" else ~begun
        taken = Signal()
        request = self.b.request
        scales, reads, packed = Const(0, 1), Const(1, 1), Const(0, 1)
        # Of a pair the first element's line is read in a cycle of its own, and blocks are
        # written in one of their own.
        pair, second, beyond = one_of_pair(config, cmd), Signal(), 0
        early = pair & ~second
        step = None
        if config.formats:
            m.submodules.steps = steps = DecodeSteps(config)
            scales, reads, packed, step = steps.scales, steps.reads, stacked(cmd), steps.step
            m.d.comb += [
                steps.format.eq(format_of(cmd)),
                steps.grouped.eq(grouped(cmd)),
                steps.advance.eq(taken & packed),
                steps.tile.eq(taken & packed & final & ~scales),
                steps.restart.eq(steps.tile & ~tile.onward),
            ]
        asks = reads
        if config.packed_cache:
            beyond = Mux(second, Mux(column, cmd.k, cmd.n), 0)
            with m.If(taken & pair):
                m.d.sync += second.eq(~second)
        if config.block_exponents:
            block, third = in_blocks(config, cmd), Signal()
            early = pair & ~Mux(block, third, second)
            with m.If(taken & block):
                m.d.sync += [second.eq(~second & ~third), third.eq(second)]
            asks = asks & ~third
        m.submodules.guard = guard = SlotGuard(config)
        if config.control.registered:
            m.d.comb += [
                guard.moves.eq(tiles.moves),
                guard.next_slot.eq(tiles.following.slot),
                guard.next_line.eq(tiles.following.line),
            ]
        m.d.comb += [
            guard.slot.eq(job.tile.slot),
            guard.line.eq(tile.line),
            guard.hold.eq(self.o.valid & self.o.ready & tile.product),
            guard.freed.eq(self.freed),
            guard.written.eq(taken & ~scales & ~early),
            guard.index.eq(index),
            index.eq(Mux(begun, following, tile.line)),
            behind.eq(Mux(reads, offset + cmd.b_stride, offset)),
            # Columns that B lacks are written as zeros; rows that it lacks meet zeros in A.
            fill.eq(column & (index >= tile.n)),
            final.eq(Mux(begun, following_final, tile.single)),
            # The first line waits until the tile can be handed on with it, the others for nothing.
            may.eq(tiles.o.valid & loads & (begun | (guard.free & self.o.ready))),
            request.p.eq(tile.b_addr + offset + beyond),
            request.valid.eq(may & ~fill & asks),
            taken.eq(may & (fill | ~asks | request.ready)),
            self.o.valid.eq(tiles.o.valid & Mux(loads, taken & handed & ~scales & ~early, 1)),
            tiles.o.ready.eq(Mux(loads, taken & final & ~scales & ~early, self.o.ready)),
        ]
        with m.If(taken & scales):
            m.d.sync += offset.eq(behind)
        with m.Elif(taken & early):
            pass
        with m.Elif(taken & final):
            m.d.sync += begun.eq(0)
            with m.If(tile.last | (packed & ~tile.onward)):
                m.d.sync += [base.eq(0), offset.eq(0)]
            with m.Elif(tile.onward):
                m.d.sync += [base.eq(behind), offset.eq(behind)]
            with m.Else():
                m.d.sync += offset.eq(base)
        with m.Elif(taken):
            m.d.sync += [
                begun.eq(1),
                following.eq(index + 1),
                following_final.eq(index + 2 == tile.end),
                offset.eq(behind),
            ]

        m.submodules.writer = writer = WeightWriter(config)
        m.d.comb += [
            writer.i.valid.eq(taken),
            *([] if step is None else [writer.i.payload.step.eq(step)]),
            writer.i.payload.slot.eq(job.tile.slot),
            writer.i.payload.index.eq(index),
            writer.i.payload.k.eq(tile.k),
            writer.i.payload.n.eq(tile.n),
            writer.data.eq(self.b.data),
            self.o_weights.valid.eq(writer.o.valid),
            self.o_weights.payload.eq(writer.o.payload),
        ]
        if config.packed_cache:
            m.d.comb += [writer.i.payload.early.eq(early), writer.i.payload.pair.eq(pair)]
        if config.low_rows:
            m.d.comb += writer.i.payload.lower.eq(lower_bits(config, cmd))
        if config.block_exponents:
            m.d.comb += [writer.i.payload.block.eq(block), writer.i.payload.second.eq(second)]
        if config.array.zero_points:
            m.d.comb += writer.i.payload.zero.eq(cmd.b_zero)
        if config.array.b_transpose:
            m.d.comb += writer.i.payload.column.eq(column)
        if config.array.wide:
            high, low = flag_of(cmd, "b_high"), flag_of(cmd, "b_low")
            m.d.comb += [writer.i.payload.wide.eq(high | low), writer.i.payload.low.eq(low)]


class WeightWriter(Component):
    """Turns a scratchpad line into a line of weights.

    ``i`` tells, in the cycle in which a line is asked for, where it goes, which of ``k`` rows or
    ``n`` columns it is (elements beyond them become zero) and what to subtract; ``data`` brings the
    line ``weight_latency`` cycles later, ``o`` the weights a cycle after that, with formats two. An
    ``early`` line of a ``pair`` is held for the line behind it, whose upper bits it is below.
    Of a ``block`` the ``second`` line is ``early``, too, and nothing is asked for with the third.
    """

    def __init__(self, config: Config):
        self.config = config
        elements = max(config.array.rows, config.array.cols)
        note = {
            "slot": range(config.array.weight_depth),
            "index": range(elements),
            "k": range(config.array.rows + 1),
            "n": range(config.array.cols + 1),
        }
        if config.array.zero_points:
            note["zero"] = signed(config.array.operand_width)
        if config.array.b_transpose:
            note["column"] = 1
        if config.packed_cache:
            note |= {"early": 1, "pair": 1}
        if config.low_rows:
            note["lower"] = 1
        if config.block_exponents:
            note |= {"block": 1, "second": 1}
        if config.formats:
            note["step"] = step_layout(config)
        note |= byte_members(config)
        super().__init__(
            {
                "i": In(Flow(data.StructLayout(note))),
                "data": In(data.ArrayLayout(8, config.line_bytes)),
                "o": Out(Flow(weight_layout(config))),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        config, weights = self.config, self.o.payload
        first = data.View(self.i.payload.shape(), delay(m, self.i.payload, 1))
        note = data.View(first.shape(), delay(m, first.as_value(), config.weight_latency - 1))
        count = delay(m, self._count(first), config.weight_latency - 1)
        valid = delay(m, self.i.valid, config.weight_latency, reset=True)
        elements, more = self.data, []
        if config.array.wide:
            elements, more = bytes_of(self.data, len(weights.data), note.wide, note.low)
        if config.formats:
            m.submodules.decoder = decoder = WeightDecoder(config)
            m.d.comb += [
                decoder.step.valid.eq(valid),
                decoder.step.payload.eq(note.step),
                *(to.eq(byte) for to, byte in zip(decoder.bytes, elements, strict=False)),
            ]
            elements = decoder.o
            written = valid & ~note.step.scale if config.weight_group else valid
            valid = delay(m, written, 1, reset=True)
            note = data.View(note.shape(), delay(m, note.as_value(), 1))
            count = delay(m, count, 1)
            more = [delay(m, one, 1) for one in more]
        if config.array.wide:
            elements = rounded(elements, more)
        lower = []
        if config.packed_cache:
            elements, lower = self._pairs(m, valid, note, count, elements)
            valid = valid & ~note.early
        m.d.sync += self.o.valid.eq(valid)
        spread(m, note.slot, slots_of(weights))
        if is_far(config):
            found = strobes(config, valid, note)
            if not (config.formats or config.packed_cache):
                # Known a cycle ahead, so that nothing but wires is on the way to the columns.
                ahead = config.weight_latency - 1
                line = data.View(self.i.payload.shape(), delay(m, self.i.payload, ahead))
                begins = delay(m, self.i.valid, ahead, reset=True)
                found = [delay(m, one, 1, reset=True) for one in strobes(config, begins, line)]
            for to, strobe in zip(weights.strobe, found, strict=True):
                near = Signal(config.array.rows, attrs=dict(KEPT))
                m.d.sync += near.eq(strobe)
                m.d.comb += to.eq(near)
        m.d.sync += weights.index.eq(note.index)
        if config.slot_scales:
            for col, (to, scale) in enumerate(zip(weights.scale, decoder.scales, strict=True)):
                part = scale.word_select(note.index, config.slot_scales)
                m.d.sync += to.eq(Mux(count > col, part, 0))
        zero = note.zero if config.array.zero_points else 0
        for line in self._copies(m):
            if config.array.b_transpose:
                m.d.sync += line.column.eq(note.column)
            enter(m, config, line.data, elements, count, zero)
            if config.low_rows:
                with m.If(note.lower):
                    for index, bits in enumerate(lower):
                        m.d.sync += line.data[config.array.rows - 1 - index].eq(bits)
        return m

    def _count(self, note):
        """Return how many elements of a line count; a column behind the last one has none."""
        if not self.config.array.b_transpose:
            return note.n
        return Mux(note.column, Mux(note.index < note.n, note.k, 0), note.n)

    def _copies(self, m):
        """Return what drives the data of the line for columns beside each other: registers."""
        weights = self.o.payload
        if "far" not in weights.shape().members:
            return [weights]
        copies = [
            Signal.like(one, name=f"far_{place}", reset_less=True, attrs=dict(KEPT))
            for place, one in enumerate(weights.far)
        ]
        m.d.comb += [far.eq(copy) for far, copy in zip(weights.far, copies, strict=True)]
        return [weights, *copies]

    def _pairs(self, m, valid, note, count, elements):
        """Return elements, or those of pairs, and the lower bits of the first ones of pairs."""
        config, made = self.config, []
        held = Signal(data.ArrayLayout(8, max(config.array.rows, config.array.cols)))
        first = note.early & ~note.second if config.block_exponents else note.early
        with m.If(valid & first):
            m.d.sync += [to.eq(element) for to, element in zip(held, elements, strict=False)]
        for kept, element in zip(held, elements, strict=False):
            both = Cat(kept[PAIRED_BITS:], element[PAIRED_BITS:])
            made.append(Mux(note.pair, both, element))
        if config.block_exponents:
            m.submodules.encoder = encoder = BlockEncoder(config)
            m.d.comb += [
                encoder.first.eq(valid & first),
                encoder.second.eq(valid & note.second),
                encoder.count.eq(count),
            ]
            for index, out in enumerate(encoder.o):
                m.d.comb += [
                    encoder.elements[index].eq(elements[index]),
                    encoder.held[index].eq(held[index]),
                ]
                made[index] = Mux(note.block, out, made[index])
            m.d.sync += self.o.payload.exponent.eq(Mux(note.block, encoder.exponent, 0))
        # Less half of their range they are signed.
        half = 1 << PAIRED_BITS - 1
        lower = [
            Cat(held[row][:PAIRED_BITS] ^ half, elements[row][:PAIRED_BITS] ^ half)
            for row in range(config.low_rows)
        ]
        return made, lower
