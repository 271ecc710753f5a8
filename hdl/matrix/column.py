"""A column of the systolic array."""

import itertools
from collections.abc import Sequence

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.latency import part_width
from celosia.hdl.component import Component
from celosia.hdl.matrix.element import ProcessingElement
from celosia.hdl.matrix.parts import part_layout
from celosia.hdl.stream.fields import inputs, outputs


class ElementColumn(Component):
    """A column with a processing element for each row; ``sum_o`` is the sum of all products.

    Ports ``NAME_i`` and ``NAME_o`` with one entry per row are the inputs from the left neighbour
    and the outputs to the right neighbour. ``a_i`` are the activations. ``slot_i`` selects the
    weight of each product: an element stores one weight per slot. If ``gating`` is true, a bit of
    ``live_i`` is 0 if the row's activation is zero. The product of row r is added one cycle after
    the product of row r - 1. The sum after row r has ``sum_widths[r]`` bits.

    Weights are written by rows or by columns. If ``row_strobe_i[r]`` is 1, the element of row r
    writes ``column_data`` to its slot ``row_slot_i[r]``. If ``transpose`` is true,
    ``column_strobe_i`` moves down by one row per cycle. Each element that the strobe reaches writes
    ``row_data`` of its row to slot ``column_slot_i``.

    If two columns share multipliers, the right column (``side`` is ``right``) has them. The left
    column outputs weights on ``beside`` and receives products on ``product``, one entry per row
    each. If ``pass_width`` is below 8, ``part_i`` selects the group of weight bits to multiply. If
    ``sleep`` is true, the bit ``awake_i`` moves down the column with the activations; at 0, the
    activation registers hold. :class:`celosia.hdl.matrix.element.ProcessingElement` describes the
    signals.
    """

    def __init__(
        self,
        *,
        sum_widths: Sequence[int],
        weight_depth: int,
        width: int,
        gating: bool,
        transpose: bool,
        sleep: bool = False,
        side: str = "",
        pass_width: int = OPERAND_BITS,
    ):
        self.side = side
        self.pass_width = pass_width
        self.sum_widths = tuple(sum_widths)
        self.weight_depth = weight_depth
        self.width = width
        self.gating = gating
        self.transpose = transpose
        self.sleep = sleep
        rows = len(self.sum_widths)
        operand = signed(width)
        operands = data.ArrayLayout(operand, rows)
        slots = data.ArrayLayout(range(weight_depth), rows)
        members = {
            "a_i": In(operands),
            "a_o": Out(operands),
            "slot_i": In(slots),
            "slot_o": Out(slots),
            "sum_o": Out(signed(self.sum_widths[-1])),
            "column_data": In(operand),
            "row_strobe_i": In(rows),
            "row_strobe_o": Out(rows),
            "row_slot_i": In(slots),
            "row_slot_o": Out(slots),
        }
        live = rows * gating
        members |= inputs(live_i=live) | outputs(live_o=live) | inputs(column_live=gating)
        if transpose:
            members |= {
                "row_data": In(operands),
                "column_strobe_i": In(1),
                "column_slot_i": In(range(weight_depth)),
            }
        parts = data.ArrayLayout(part_layout(pass_width), rows)
        members |= inputs(row_live=rows * (transpose and gating), awake_i=sleep, part_i=parts)
        members |= outputs(part_o=parts)
        if side:
            other = part_width(pass_width) if pass_width < OPERAND_BITS else width
            beside = data.ArrayLayout(other + gating, rows)
            products = data.ArrayLayout(signed(width + other), rows)
            left = side == "left"
            members["beside"] = Out(beside) if left else In(beside)
            members["product"] = In(products) if left else Out(products)
        super().__init__(members)

    def circuit(self, m):
        elements = []
        for row, sum_width in enumerate(self.sum_widths):
            element = ProcessingElement(
                weight_depth=self.weight_depth,
                width=self.width,
                sum_i_width=self.sum_widths[row - 1] if row else 0,
                sum_o_width=sum_width,
                gating=self.gating,
                transpose=self.transpose,
                sleep=self.sleep,
                side=self.side,
                pass_width=self.pass_width,
            )
            m.submodules[f"element_{row}"] = element
            elements.append(element)
            m.d.comb += [
                element.a_i.eq(self.a_i[row]),
                self.a_o[row].eq(element.a_o),
                element.slot_i.eq(self.slot_i[row]),
                self.slot_o[row].eq(element.slot_o),
                element.column_data.eq(self.column_data),
                element.row_strobe_i.eq(self.row_strobe_i[row]),
                self.row_strobe_o[row].eq(element.row_strobe_o),
                element.row_slot_i.eq(self.row_slot_i[row]),
                self.row_slot_o[row].eq(element.row_slot_o),
            ]
            if self.gating:
                m.d.comb += [
                    element.live_i.eq(self.live_i[row]),
                    self.live_o[row].eq(element.live_o),
                    element.column_live.eq(self.column_live),
                ]
            if self.pass_width < OPERAND_BITS:
                m.d.comb += [
                    element.part_i.eq(self.part_i[row]),
                    self.part_o[row].eq(element.part_o),
                ]
            if self.transpose:
                m.d.comb += element.row_data.eq(self.row_data[row])
            if self.transpose and self.gating:
                m.d.comb += element.row_live.eq(self.row_live[row])
            if self.side == "left":
                m.d.comb += [
                    self.beside[row].eq(element.beside),
                    element.product.eq(self.product[row]),
                ]
            elif self.side == "right":
                m.d.comb += [
                    element.beside.eq(self.beside[row]),
                    self.product[row].eq(element.product),
                ]
        for upper, lower in itertools.pairwise(elements):
            m.d.comb += lower.sum_i.eq(upper.sum_o)
            if self.sleep:
                m.d.comb += lower.awake_i.eq(upper.awake_o)
            if self.transpose:
                m.d.comb += [
                    lower.column_strobe_i.eq(upper.column_strobe_o),
                    lower.column_slot_i.eq(upper.column_slot_o),
                ]
        m.d.comb += self.sum_o.eq(elements[-1].sum_o)
        if self.sleep:
            m.d.comb += elements[0].awake_i.eq(self.awake_i)
        if self.transpose:
            m.d.comb += [
                elements[0].column_strobe_i.eq(self.column_strobe_i),
                elements[0].column_slot_i.eq(self.column_slot_i),
            ]
