"""One processing element of the systolic array."""

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ram import Ram

REGISTER_DEPTH = 4
"""Weights up to which an element keeps them in registers rather than in a memory."""


class ProcessingElement(wiring.Component):
    """Multiplies the activation that passes by one of its weights and adds the sum from above.

    An activation ``a_i`` with its weight's ``slot_i`` leaves to the right a cycle later; its
    product is added to the ``sum_i`` of two cycles later, and leaves below as ``sum_o`` a cycle
    after that. With ``gating``, ``live_i`` is 0 where the activation is zero (``a_i`` is then
    ignored), and neither the activation's nor the product's register moves at a zero operand.

    A ``row_strobe_i`` writes ``column_data`` to weight ``row_slot_i`` and leaves to the right a
    cycle later; with ``transpose`` a ``column_strobe_i`` writes ``row_data`` to
    ``column_slot_i`` and leaves below. A weight written in a cycle is used by the activations
    that come after that cycle, not by those of that cycle or before.
    """

    def __init__(
        self, *, weight_depth: int, width: int, sum_width: int, gating: bool, transpose: bool
    ):
        self.weight_depth = weight_depth
        self.width = width
        self.sum_width = sum_width
        self.gating = gating
        self.transpose = transpose
        slot = range(weight_depth)
        members = {
            "a_i": In(signed(width)),
            "a_o": Out(signed(width)),
            "slot_i": In(slot),
            "slot_o": Out(slot),
            "sum_i": In(signed(sum_width)),
            "sum_o": Out(signed(sum_width)),
            "column_data": In(signed(width)),
            "row_strobe_i": In(1),
            "row_strobe_o": Out(1),
            "row_slot_i": In(slot),
            "row_slot_o": Out(slot),
        }
        if gating:
            members |= {"live_i": In(1), "live_o": Out(1)}
        if transpose:
            members |= {
                "row_data": In(signed(width)),
                "column_strobe_i": In(1),
                "column_strobe_o": Out(1),
                "column_slot_i": In(slot),
                "column_slot_o": Out(slot),
            }
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        write, where, what = self.row_strobe_i, self.row_slot_i, self.column_data
        m.d.sync += [
            self.row_strobe_o.eq(self.row_strobe_i),
            self.row_slot_o.eq(self.row_slot_i),
            self.slot_o.eq(self.slot_i),
        ]
        if self.transpose:
            m.d.sync += [
                self.column_strobe_o.eq(self.column_strobe_i),
                self.column_slot_o.eq(self.column_slot_i),
            ]
            where = Mux(self.column_strobe_i, self.column_slot_i, where)
            what = Mux(self.column_strobe_i, self.row_data, what)
            write = write | self.column_strobe_i
        weight = self._weights(m, write, where, what)

        product = Signal(signed(2 * self.width), reset_less=True)
        if self.gating:
            multiplies, counts = Signal(), Signal()
            with m.If(self.live_i):
                m.d.sync += self.a_o.eq(self.a_i)
            m.d.comb += multiplies.eq(self.live_o & (weight != 0))
            m.d.sync += [self.live_o.eq(self.live_i), counts.eq(multiplies)]
            with m.If(multiplies):
                m.d.sync += product.eq(self.a_o * weight)
            m.d.sync += self.sum_o.eq(self.sum_i + Mux(counts, product, 0))
        else:
            m.d.sync += [
                self.a_o.eq(self.a_i),
                product.eq(self.a_o * weight),
                self.sum_o.eq(self.sum_i + product),
            ]
        return m

    def _weights(self, m, write, where, what):
        """Return the weight of the activation in ``a_o``."""
        if self.weight_depth > REGISTER_DEPTH:
            m.submodules.weights = weights = Ram(self.width, self.weight_depth)
            m.d.comb += [
                weights.write_en.eq(write),
                weights.write_addr.eq(where),
                weights.write_data.eq(what),
                weights.read_en.eq(1),
                weights.read_addr.eq(self.slot_i),
            ]
            return weights.read_data.as_signed()
        weights = [
            Signal(signed(self.width), name=f"weight_{slot}") for slot in range(self.weight_depth)
        ]
        for slot, weight in enumerate(weights):
            with m.If(write & (where == slot)):
                m.d.sync += weight.eq(what)
        chosen = Signal(signed(self.width))
        m.d.comb += chosen.eq(Array(weights)[self.slot_o])
        return chosen
