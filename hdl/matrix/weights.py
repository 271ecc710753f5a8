"""Loads the weights of each tile into the array, up to one tile ahead of the products."""

from amaranth.hdl import Const, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import weight_layout
from celosia.hdl.matrix.decoder import DecodeSteps
from celosia.hdl.matrix.slots import SLOT_GUARDS
from celosia.hdl.matrix.tiles import (
    TILE_WALKERS,
    format_of,
    grouped,
    in_blocks,
    lower_bits,
    one_of_pair,
    paired,
    stacked,
    tile_layout,
)
from celosia.hdl.matrix.wide import flag_of
from celosia.hdl.matrix.writer import WeightWriter
from celosia.hdl.ports import ReadPort, command_layout
from celosia.hdl.stream.fields import assign, present
from celosia.hdl.stream.flow import Flow


def job_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a job: the multiplication by one weight tile, or only its load.

    ``tile`` describes the tile (:func:`celosia.hdl.matrix.tiles.tile_layout`). ``m``, ``a_stride``
    and ``a_zero`` are the number of activation rows, their distance in bytes, and their zero point.
    """
    return data.StructLayout(
        {
            "tile": tile_layout(config),
            "a_stride": unsigned(config.access.addr_width),
            "a_zero": signed(config.array.operand_width),
            "m": unsigned(COUNT_WIDTH),
            "push": unsigned(len(Engine)),  # receive a token at the end of the command
            **present(
                parts=range(config.vector_passes),  # repetitions of A: bits of B, bytes of A
                wide=config.array.wide,  # A is INT16
                paired=config.paired,  # each stored byte has 4-bit weights of two tiles
                lower=config.low_rows > 0,  # the last rows have lower bits of attention keys
                block=config.block_exponents,  # each row has an exponent
                scaled=config.slot_scales > 0,  # groups of weights have scales
            ),
        }
    )


class WeightFetcher(Component):
    """Reads the weights of MATMUL and PRELOAD commands, tile by tile without a pause.

    - ``b``: requests for lines (rows or columns) of a tile. After the first line, ``b`` must accept
      the other lines without a wait.
    - ``o_weights``: the lines minus their zero point.
    - ``o``: a job for each tile (:func:`job_layout`), when the tile's first line is requested (last
      line in an adder tree). Activations must be requested at least ``1 + weight_latency -
      sram_latency`` cycles later, or one more with weight formats.
    - ``placed``: 1 if an earlier PRELOAD has loaded the tile on ``o``.
    - ``freed``: must be 1 with the last activation request for a tile.
    - ``named``: 1 while a tile is left to load or to output.
    """

    def __init__(self, config: MatrixConfig):
        members = {
            "i": In(stream.Signature(command_layout(Engine.MATRIX))),
            "b": Out(ReadPort(config.access)),
            "o": Out(stream.Signature(job_layout(config))),
            "freed": In(1),
            "named": Out(1),
            "placed": Out(1),
            "o_weights": Out(Flow(weight_layout(config))),
        }
        super().__init__(members)

    def circuit(self, m):
        config = self.config
        m.submodules.tiles = tiles = TILE_WALKERS[config.stages](config)
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
        m.d.comb += assign(
            job,
            paired=(paired(cmd) if config.packed_slots else 0) | alone,
            lower=lower_bits(config, cmd),
            block=in_blocks(config, cmd),
            scaled=grouped(cmd),
        )
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
            # Equation (19) has no products of two low bytes: one pass, with the high bytes of A.
            m.d.comb += [job.wide.eq(wide), job.parts.eq(wide & ~flag_of(cmd, "b_low"))]
        self._load(m, cmd, tiles, job)

    def _load(self, m, cmd, tiles, job):
        """Request a tile's lines, and pass the tile on with the first of them."""
        config, tile = self.config, tiles.o.p
        column, loads = tile.column, tile.loads
        begun = Signal()
        following = Signal.like(tile.line)
        index = Signal.like(tile.line)
        base = Signal(config.access.addr_width)
        offset = Signal(config.access.addr_width)
        behind = Signal(config.access.addr_width)
        fill = Signal()
        final = Signal()
        following_final = Signal()
        may = Signal()
        handed = final if config.array.kind == "tree" else ~begun
        taken = Signal()
        request = self.b.request
        scales, reads, packed = Const(0, 1), Const(1, 1), Const(0, 1)
        # A pair's first line is read in a separate cycle, and a block is written in a separate
        # cycle.
        pair, second, beyond = one_of_pair(config, cmd), Signal(), 0
        block = in_blocks(config, cmd)
        early = pair & ~second
        step = None
        if config.formats:
            m.submodules.steps = steps = DecodeSteps(
                config.formats, config.weight_group, config.array.rows
            )
            scales, reads, packed, step = (
                steps.scales,
                steps.reads,
                stacked(config, cmd),
                steps.step,
            )
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
            third = Signal()
            early = pair & ~Mux(block, third, second)
            with m.If(taken & block):
                m.d.sync += [second.eq(~second & ~third), third.eq(second)]
            asks = asks & ~third
        m.submodules.guard = guard = SLOT_GUARDS[config.stages](
            lines=config.lines,
            weight_depth=config.array.weight_depth,
            late=config.stages + bool(config.formats),
            systolic=config.array.kind == "systolic",
        )
        guard.watch(m, tiles)
        m.d.comb += [
            guard.slot.eq(job.tile.slot),
            guard.line.eq(tile.line),
            guard.hold.eq(self.o.valid & self.o.ready & tile.product),
            guard.freed.eq(self.freed),
            guard.written.eq(taken & ~scales & ~early),
            guard.index.eq(index),
            index.eq(Mux(begun, following, tile.line)),
            behind.eq(Mux(reads, offset + cmd.b_stride, offset)),
            # Columns that B lacks are written as zeros; rows that it lacks are multiplied by zeros.
            fill.eq(column & (index >= tile.n)),
            final.eq(Mux(begun, following_final, tile.single)),
            # The first line waits until the tile can be passed on with it; the others never wait.
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
        high, low = flag_of(cmd, "b_high"), flag_of(cmd, "b_low")
        m.d.comb += assign(
            writer.i.payload,
            early=early,
            pair=pair,
            lower=lower_bits(config, cmd),
            block=block,
            second=second,
            zero=cmd.b_zero,
            column=column,
            wide=high | low,
            low=low,
        )
