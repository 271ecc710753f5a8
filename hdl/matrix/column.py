"""A column of the systolic array."""

import itertools

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.latency import factor_width
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import sum_width
from celosia.hdl.matrix.element import ProcessingElement
from celosia.hdl.matrix.pairs import pair_members
from celosia.hdl.matrix.parts import part_layout
from celosia.hdl.stream.fields import inputs, outputs

_DOWN = {
    "sum_i": "sum_o",
    "awake_i": "awake_o",
    "column_strobe_i": "column_strobe_o",
    "column_slot_i": "column_slot_o",
}
"""Inputs of an element from the element above, with the names of that element's outputs."""

_SHARED = ("column_data", "column_live")
"""Inputs of a column that go to the elements of all rows."""


class ElementColumn(Component):
    """A column of the systolic array: one multiplier and stored weights per row, and their sum.

    - ``a_i``, ``slot_i``, ``part_i``, ``live_i``: for each row, activation, number of its weight,
      the weight's bits to use, and 0 for a zero activation. Row r must arrive r cycles after row 0.
    - ``sum_o``: the sum of the products.
    - ``row_strobe_i``: bit r writes ``column_data`` to weight ``row_slot_i`` of row r.
    - ``column_strobe_i``: writes ``row_data`` to weight ``column_slot_i``, in row r after r cycles.
    - ``row_live``, ``column_live``: 0 if the weight to write is zero.
    - ``awake_i``: 0 disables row r after r cycles.
    - ``beside``, ``product``: :func:`pair_members`.

    Every other ``NAME_o`` is ``NAME_i``, one cycle later.
    """

    def __init__(self, config: MatrixConfig, side: str = ""):
        array, rows = config.array, config.array.rows
        gating, transpose = array.operand_gating, array.b_transpose
        operand, slot = signed(config.element_width), range(array.weight_depth)
        operands, slots = data.ArrayLayout(operand, rows), data.ArrayLayout(slot, rows)
        members = {
            "a_i": In(operands),
            "a_o": Out(operands),
            "slot_i": In(slots),
            "slot_o": Out(slots),
            "sum_o": Out(signed(sum_width(config, rows))),
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
                "column_slot_i": In(slot),
            }
        parts = data.ArrayLayout(part_layout(array.pass_width), rows)
        members |= inputs(row_live=live * transpose, awake_i=array.sleep, part_i=parts)
        members |= outputs(part_o=parts)
        other = factor_width(config)
        beside = data.ArrayLayout(other + gating, rows)
        products = data.ArrayLayout(signed(config.element_width + other), rows)
        super().__init__(members | pair_members(side, beside, products))

    def circuit(self, m):
        config, array = self.config, self.config.array
        widths = [sum_width(config, row + 1) for row in range(array.rows)]
        elements = []
        for row, (above, width) in enumerate(zip([0, *widths], widths, strict=False)):
            element = ProcessingElement(
                weight_depth=array.weight_depth,
                width=config.element_width,
                sum_i_width=above,
                sum_o_width=width,
                gating=array.operand_gating,
                transpose=array.b_transpose,
                sleep=array.sleep,
                side=self.side,
                pass_width=array.pass_width,
            )
            m.submodules[f"element_{row}"] = element
            elements.append(element)
            for name, member in element.signature.members.items():
                if name not in (*_DOWN, "sum_o") and name in self.signature.members:
                    own, inner = getattr(self, name), getattr(element, name)
                    own = own if name in _SHARED else own[row]
                    m.d.comb += inner.eq(own) if member.flow == In else own.eq(inner)
        for upper, lower in itertools.pairwise(elements):
            m.d.comb += [
                getattr(lower, below).eq(getattr(upper, above))
                for below, above in _DOWN.items()
                if below in lower.signature.members
            ]
        m.d.comb += self.sum_o.eq(elements[-1].sum_o)
        m.d.comb += [
            getattr(elements[0], name).eq(getattr(self, name))
            for name in _DOWN
            if name in self.signature.members
        ]
