"""Reads the activations of tiles from the scratchpad, and streams them to the array."""

from amaranth.hdl import Const, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import multiply_fields
from celosia.hdl.matrix.weights import job_layout
from celosia.hdl.matrix.wide import add_carries, byte_select_fields, bytes_of, shift_members
from celosia.hdl.ports import ReadPort
from celosia.hdl.stream.fields import carry
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import slices


def vector_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of the control fields that accompany a vector of activations.

    ``valid`` is 0 without a vector. ``k`` and ``n`` are the numbers of used array rows and columns.
    ``last`` is 1 for the last vector of a command; ``push`` is the mask of engines that then
    receive a dependency token.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "acc_addr": unsigned(config.acc_addr_width),
            "slot": range(config.array.weight_depth),
            "zero": signed(config.array.operand_width),
            "k": range(config.array.rows + 1),
            "n": range(config.array.cols + 1),
            "last": 1,
            "push": unsigned(len(Engine)),
            **multiply_fields(config),
            **byte_select_fields(config),
            **shift_members(config),
        }
    )


class ActivationStreamer(Component):
    """Reads the activations for each weight tile row by row, and sends them to the array.

    - ``i``: a job for each tile (:func:`celosia.hdl.matrix.weights.job_layout`).
    - ``a``: read requests for rows of activations, up to one row per cycle.
    - ``sends``: 1 if the scratchpad accepts a request.
    - ``elements``, ``note``: the row and its control fields (:func:`vector_layout`),
      ``sram_latency`` cycles after ``sends``.
    - ``freed``: 1 with the last request for a tile. From the next cycle on, the tile's storage may
      be loaded again.
    - ``idle``: 1 if no job is left.

    A tile's rows are sent once for each group of weight bits, or for each byte of INT16
    activations.
    """

    def __init__(self, config: MatrixConfig):
        super().__init__(
            {
                "i": In(stream.Signature(job_layout(config))),
                "a": Out(ReadPort(config.access)),
                "elements": Out(data.ArrayLayout(8 + config.array.wide, config.array.rows)),
                "note": Out(vector_layout(config)),
                "freed": Out(1),
                "idle": Out(1),
                "sends": Out(1),
            }
        )

    def circuit(self, m):
        config, job = self.config, self.i.p
        asked = stream.Signature(line_layout(config)).create()
        m.d.comb += [
            asked.p.note.slot.eq(job.tile.slot),
            asked.p.note.zero.eq(job.a_zero),
            asked.p.note.k.eq(job.tile.k),
            asked.p.note.n.eq(job.tile.n),
            asked.p.note.push.eq(job.push),
        ]
        line = slices(m, asked, "stage", stages=config.stages)
        request, granted = self.a.request, Signal()
        m.d.comb += [
            request.valid.eq(line.valid),
            request.p.eq(line.p.addr),
            line.ready.eq(request.ready),
            granted.eq(line.valid & line.ready),
        ]

        note = Signal(vector_layout(config))
        late = data.View(note.shape(), delay(m, note.as_value(), config.sram_latency))
        m.d.comb += [
            note.eq(line.p.note),
            note.valid.eq(granted),
            note.last.eq(granted & line.p.note.last),
            self.sends.eq(granted),
            self.freed.eq(granted & line.p.frees),
            self.note.eq(late),
        ]
        read = list(self.a.data)[: config.array.rows]
        if config.array.wide:
            read = add_carries(*bytes_of(self.a.data, config.array.rows, late.wide, late.low))
        m.d.comb += [element.eq(byte) for element, byte in zip(self.elements, read, strict=True)]
        run = self.i.valid & job.tile.product
        whole = Const(1, 1)
        passed = Signal()  # All vectors of a job have come with a part.
        if config.vector_passes > 1:
            place = Signal(range(config.vector_passes))
            whole = place == job.parts
            with m.If(passed):
                m.d.sync += place.eq(Mux(whole, 0, place + 1))
        if config.passes > 1:
            m.d.comb += asked.p.note.part.place.eq(place)
        if config.array.wide:
            # Products of high bytes alone are not shifted.
            m.d.comb += [
                asked.p.note.wide.eq(job.wide),
                asked.p.note.low.eq(~whole),
                asked.p.note.shifted.eq(place),
            ]
        if config.parted:
            m.d.comb += asked.p.note.part.last.eq(whole)
        if config.slot_scales:
            m.d.comb += asked.p.note.scaled.eq(job.scaled & job.paired)
        m.d.comb += carry(asked.p.note, job, "lower", "block")
        if config.paired:
            m.d.comb += asked.p.note.part.alone.eq(job.paired)
            with m.If(job.paired):
                m.d.comb += asked.p.note.part.place.eq(job.tile.half)
        self._ask(m, job, asked, run, whole, passed)
        m.d.comb += self.idle.eq(~self.i.valid & ~line.valid)
        # A job without vectors waits for earlier vectors.
        with m.If(self.i.valid & ~job.tile.product & ~line.valid):
            m.d.comb += [
                note.last.eq(job.tile.last),
                note.push.eq(job.push),
                self.i.ready.eq(1),
            ]

    def _ask(self, m, job, asked, run, whole, passed):
        """Request one row after another.

        The next row's request is computed with the previous one, because an address and a
        comparison must not delay a signal that other engines wait for.
        """
        row = Signal(COUNT_WIDTH)
        begun = Signal()
        addr = Signal(self.config.access.addr_width)
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


def line_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a request for a vector of activations from the scratchpad.

    ``addr`` is the byte address, and ``note`` has the control fields of the vector
    (:func:`vector_layout`). ``frees`` is 1 for the last vector of a tile, after which the tile's
    weight slot is free.
    """
    return data.StructLayout(
        {"addr": unsigned(config.access.addr_width), "note": vector_layout(config), "frees": 1}
    )
