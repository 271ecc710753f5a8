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
    """Return the layout of a job: the work on one tile of weights for a MATMUL or PRELOAD command.

    A MATMUL multiplies rows of activations A by the tile; a PRELOAD only loads the tile. Every job
    has these fields:

    - ``tile`` describes the tile (:func:`celosia.hdl.matrix.tiles.tile_layout`).
    - ``m`` is the number of rows of A, ``a_stride`` the distance between adjacent rows in bytes,
      and ``a_zero`` the zero point of A.
    - ``push`` is a mask of the engines that receive a dependency token when the command is done,
      after its last tile.

    A job has these fields only if the machine uses them. A weight slot is storage in the array for
    one tile, with one byte for each row and column.

    - ``parts`` is the number of repetitions of A: all rows of A enter the array ``parts + 1``
      times. Each time, they are multiplied by another group of weight bits, or another byte of
      INT16 activations enters.
    - ``wide`` is 1 if activations are INT16.
    - ``paired`` is 1 if each byte of the slot has two 4-bit weights, one of each of two tiles.
    - ``lower`` is 1 if the last rows of the slot have lower bits of attention keys, and the first
      rows the upper bits.
    - ``block`` is 1 if each row of the slot has an exponent for its weights.
    - ``scaled`` is 1 if groups of weights have scales.
    """
    return data.StructLayout(
        {
            "tile": tile_layout(config),
            "a_stride": unsigned(config.access.addr_width),
            "a_zero": signed(config.array.operand_width),
            "m": unsigned(COUNT_WIDTH),
            "push": unsigned(len(Engine)),
            **present(
                parts=range(config.vector_passes),
                wide=config.array.wide,
                paired=config.paired,
                lower=config.low_rows > 0,
                block=config.block_exponents,
                scaled=config.slot_scales > 0,
            ),
        }
    )


class WeightFetcher(Component):
    """Reads the weights of MATMUL and PRELOAD commands from port ``b``, tile by tile.

    A tile is a part of the weight matrix B, at most as large as the array. A line is a row of a
    tile, or a column if B is transposed. A weight slot is storage in the array for one tile. A
    MATMUL writes its tiles to slots 0 and 1 alternately; a MATMUL of tiles that a PRELOAD has
    loaded reads no weights. A PRELOAD writes its tiles to consecutive slots, from the command's
    ``slot`` on.

    Inputs:

    - ``i``: commands. The next command is accepted while the last tile of the current one is read.
    - ``freed``: must be 1 in the cycle in which the last row of activations for a tile is
      requested. The slot of a tile is written again only after this cycle.

    Outputs:

    - ``b``: requests for lines. **If port ``b`` has accepted the first line of a tile, it must
      accept the other lines without a wait**.
    - ``o_weights``: lines of weights minus their zero point. Columns past the end of B are zero.
    - ``o``: a job for each tile (:func:`job_layout`), which describes the activations to multiply.
    - ``placed``: 1 if an earlier PRELOAD has loaded the tile of the job on ``o``.
    - ``named``: 1 while the fetcher has a tile to load or a job to output.

    There is no pause between tiles. The load of a tile takes this number of cycles:

    - B is not transposed: one cycle for each row of the tile.
    - B is transposed: ``cols`` cycles, even if the tile has fewer columns.
    - Two lines of B are packed into one line of the slot, with four bits per element: two cycles
      for each packed line. If packed lines have an exponent (flag ``block``): three cycles.
    - Groups of weights have scales: one more cycle for each row of scales.

    The job of a tile is output in the cycle in which one line is requested. It is the first line in
    a systolic array. It is the last line in an adder tree, because an adder tree needs all rows at
    once. The activations of the job must reach the array after this line. So the first activations
    must be requested at least ``1 + weight_latency - sram_latency`` cycles after the job, or one
    cycle more if the configuration has weight formats.
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
