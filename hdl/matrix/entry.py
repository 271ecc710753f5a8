"""The path of activations from the scratchpad to the systolic array."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import activation_layout, gated_width, slots_of, subtract_zero_point
from celosia.hdl.matrix.streamer import vector_layout
from celosia.hdl.stream.fields import carry, inputs, outputs
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import delay, spread


class ActivationEntry(Component):
    """Subtracts the zero point from activations, and sets those of unused array rows to 0.

    - ``elements``, ``note``: a vector of activations, and its control fields.
    - ``o``: the vector for the array, one cycle later.
    - ``macs``: number of products (used rows times used columns), two cycles after ``note``.
    - ``gated``: number of zero activations in used rows, three cycles after ``note``.
    - ``zeros``: input from the array, the number of its rows whose activation is 0.

    A vector that enters in several passes is counted in its first pass.
    """

    def __init__(self, config: MatrixConfig):
        members = {
            "elements": In(data.ArrayLayout(8 + config.array.wide, config.array.rows)),
            "note": In(vector_layout(config)),
            "o": Out(Flow(activation_layout(config))),
            "macs": Out(range(config.elements + 1)),
        }
        zeros = gated_width(config)
        super().__init__(members | inputs(zeros=zeros) | outputs(gated=zeros))

    def circuit(self, m):
        config, note = self.config, self.note
        m.d.sync += self.o.valid.eq(note.valid)
        spread(m, note.slot, slots_of(self.o.payload))
        first = note.valid
        names = ("n", "scaled", "lower", "block", "part", "shifted")
        m.d.sync += carry(self.o.payload, note, *names)
        if config.passes > 1:
            alone = note.part.alone if config.paired else 0
            first = note.valid & ((note.part.place == 0) | alone)
        if config.array.wide:
            first = note.valid & (~note.wide | note.low)
        subtract_zero_point(m, config, self.o.payload.a, self.elements, note.k, note.zero)
        # The lower bits of the first elements meet these once more.
        for row in range(config.low_rows):
            with m.If(note.lower):
                again = self.elements[row].as_signed()
                m.d.sync += self.o.payload.a[config.array.rows - 1 - row].eq(again)

        # A product of two small numbers, without a multiplier.
        k = Signal.like(note.k)
        n = Signal.like(note.n)
        m.d.sync += [k.eq(Mux(first, note.k, 0)), n.eq(note.n)]
        m.d.sync += self.macs.eq(sum(Mux(bit, k << place, 0) for place, bit in enumerate(n)))
        if config.array.operand_gating:
            # Elements past the end count as zeros.
            late_k = delay(m, k, 2)
            m.d.comb += self.gated.eq(Mux(late_k == 0, 0, self.zeros + late_k - config.array.rows))
