"""The systolic array: a weight-stationary grid of processing elements."""

import itertools

from celosia.arch.latency import array_latency, product_latency
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import array_members, side, sum_width
from celosia.hdl.matrix.column import ElementColumn
from celosia.hdl.matrix.edges import ActivationEdge, SleepEdge, SumEdge, WeightEdge
from celosia.hdl.matrix.parts import shifted_to_part
from celosia.hdl.matrix.wide import in_place
from celosia.hdl.stream.fields import carry, chain
from celosia.hdl.stream.pipeline import delay


class SystolicArray(Component):
    """An array of ``rows`` x ``cols`` elements, which multiplies one vector per cycle by a tile.

    ``i`` receives vectors of activations. ``o`` is one sum per column, ``latency`` cycles later,
    modulo 2**acc_width. ``i_weights`` writes one line per cycle into a slot (storage for one tile),
    in the order of rows, or of columns if ``column`` is 1. ``zeros`` is the number of zero
    activations, two cycles after their vector.

    - Vectors that use the old weights must arrive before the first line.
    - Vectors that use the new weights must arrive after the first line. The other lines must follow
      without a pause, unless these vectors arrive after the last line.
    """

    def __init__(self, config: MatrixConfig):
        super().__init__(array_members(config))

    @property
    def latency(self) -> int:
        """Number of cycles from a vector of activations on ``i`` to its sums on ``o``."""
        return array_latency(self.config, "systolic")

    def circuit(self, m):
        config = self.config
        columns = []
        for col in range(config.array.cols):
            column = ElementColumn(config, side(config, col))
            m.submodules[f"column_{col}"] = column
            columns.append(column)
        for left, right in itertools.pairwise(columns):
            m.d.comb += chain(right, left, "a", "slot", "row_strobe", "row_slot", "live", "part")
            if right.side == "right":
                m.d.comb += [right.beside.eq(left.beside), left.product.eq(right.product)]
        self._activations(m, columns[0])
        if config.array.sleep:
            together = [column.side == "right" for column in columns]
            m.submodules.sleep_edge = edge = SleepEdge(together=together)
            m.d.comb += [edge.valid.eq(self.i.valid), edge.n.eq(self.i.payload.n)]
            for column, awake in zip(columns, edge.o, strict=True):
                m.d.comb += column.awake_i.eq(awake)
        self._weights(m, columns)
        self._sums(m, columns)

    def _activations(self, m, first):
        """Place the left edge."""
        config = self.config
        m.submodules.activation_edge = edge = ActivationEdge(config)
        m.d.comb += [
            edge.valid.eq(self.i.valid),
            edge.a.eq(self.i.payload.a),
            edge.slot.eq(self.i.payload.slot),
            first.a_i.eq(edge.o_a),
            first.slot_i.eq(edge.o_slot),
        ]
        if config.array.operand_gating:
            m.d.comb += [first.live_i.eq(edge.o_live), self.zeros.eq(edge.zeros)]
        if config.passes > 1:
            part = self.i.payload.part
            for row in range(config.array.rows):
                part = delay(m, part, 1)
                m.d.comb += first.part_i[row].eq(part)

    def _weights(self, m, columns):
        """Place the edge through which weights enter."""
        config = self.config
        m.submodules.weight_edge = edge = WeightEdge(config)
        m.d.comb += [
            edge.en.eq(self.i_weights.valid),
            edge.slot.eq(self.i_weights.payload.slot),
            edge.index.eq(self.i_weights.payload.index),
            edge.data.eq(self.i_weights.payload.data),
            columns[0].row_strobe_i.eq(edge.o_row),
        ]
        for slot in columns[0].row_slot_i:
            m.d.comb += slot.eq(edge.o_slot)
        m.d.comb += carry(edge, self.i_weights.payload, "column")
        for col, column in enumerate(columns):
            m.d.comb += column.column_data.eq(edge.o_data[col])
            if config.array.operand_gating:
                m.d.comb += column.column_live.eq(edge.o_live[col])
            if config.array.b_transpose:
                m.d.comb += [
                    column.column_strobe_i.eq(edge.o_column[col]),
                    column.column_slot_i.eq(edge.o_slot),
                    *(data.eq(edge.o_data[row]) for row, data in enumerate(column.row_data)),
                ]
            if config.array.b_transpose and config.array.operand_gating:
                m.d.comb += column.row_live.eq(edge.o_live[: config.array.rows])

    def _sums(self, m, columns):
        """Place the lower edge."""
        config = self.config
        # Additional cycles of paired products; a column without a partner has none.
        more = product_latency(config) - 2
        m.submodules.sum_edge = edge = SumEdge(
            late=[(column.side == "left") - more * (not column.side) for column in columns],
            width=sum_width(config, config.array.rows),
            latency=self.latency,
            sleep=config.array.sleep,
        )
        m.d.comb += [
            edge.valid.eq(self.i.valid),
            self.o.valid.eq(edge.o_valid),
        ]
        for col, column in enumerate(columns):
            m.d.comb += edge.i[col].eq(column.sum_o)
        self._leave(m, edge.o)

    def _leave(self, m, sums):
        """Shift the sums to the position of their part or byte."""
        width = self.config.array.pass_width
        if self.config.passes > 1:
            part = delay(m, self.i.payload.part, self.latency)
            sums = [shifted_to_part(total, part, width) for total in sums]
        if self.config.array.wide:
            sums = in_place(m, list(sums), self.i.payload.shifted, self.latency)
        for out, total in zip(self.o.payload, sums, strict=True):
            m.d.comb += out.eq(total)
