"""The systolic array: a grid of processing elements, weight-stationary."""

import itertools

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.element import ProcessingElement
from hdl.pipeline import delay


class SystolicArray(wiring.Component):
    """``rows`` x ``cols`` elements: sums over the rows, one vector of activations a cycle.

    In every cycle with ``valid_i``, the activations ``a`` (one per row) and the ``slot`` of the
    weights to use go in; ``latency`` cycles later ``valid_o`` is 1 and ``sums`` holds, for each
    column, the sum over the rows of activation times weight, modulo 2**acc_width.

    ``write_en`` writes one line of weights to ``write_slot``: row ``write_index`` (an element per
    column) or, with ``write_column``, column ``write_index`` (an element per row). Lines of a slot
    are written in ascending order, one a cycle at most. A line may be written from the cycle
    after the last activations that use the slot's old weights went in, and activations may use
    the slot from the cycle after its last line: writes travel through the array as activations
    do, so that one slot is written while the other is in use.

    ``zeros`` (with ``operand_gating``) tells how many activations that went in the cycle before
    were zero; they and zero weights leave their elements' registers at rest.
    """

    def __init__(self, config: Config):
        self.config = config
        rows, cols, width = config.rows, config.cols, config.element_width
        members = {
            "valid_i": In(1),
            "a": In(data.ArrayLayout(signed(width), rows)),
            "slot": In(range(config.weight_depth)),
            "valid_o": Out(1),
            "sums": Out(data.ArrayLayout(signed(config.acc_width), cols)),
            "write_en": In(1),
            "write_slot": In(range(config.weight_depth)),
            "write_index": In(range(max(rows, cols))),
            "write_data": In(data.ArrayLayout(signed(width), max(rows, cols))),
        }
        if config.b_transpose:
            members["write_column"] = In(1)
        super().__init__(members)

    @property
    def latency(self) -> int:
        """Cycles from activations to their sums."""
        return self.config.rows + self.config.cols + 1

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        grid = [
            [
                ProcessingElement(
                    weight_depth=config.weight_depth,
                    width=config.element_width,
                    sum_width=config.acc_width,
                    gating=config.operand_gating,
                    transpose=config.b_transpose,
                )
                for _ in range(config.cols)
            ]
            for _ in range(config.rows)
        ]
        for row, line in enumerate(grid):
            for col, element in enumerate(line):
                m.submodules[f"element_{row}_{col}"] = element
        self._activations(m, grid)
        self._row_writes(m, grid)
        if config.b_transpose:
            self._column_writes(m, grid)
        self._sums(m, grid)
        return m

    def _activations(self, m, grid):
        """Activations enter at the left, row r delayed by r, and move right."""
        for row, line in enumerate(grid):
            m.d.comb += [
                line[0].a_i.eq(delay(m, self.a[row], row)),
                line[0].slot_i.eq(delay(m, self.slot, row)),
            ]
            if self.config.operand_gating:
                live = Signal(name=f"live_{row}")
                m.d.comb += live.eq(self.valid_i & (self.a[row] != 0))
                m.d.comb += line[0].live_i.eq(delay(m, live, row))
            for left, right in itertools.pairwise(line):
                m.d.comb += [right.a_i.eq(left.a_o), right.slot_i.eq(left.slot_o)]
                if self.config.operand_gating:
                    m.d.comb += right.live_i.eq(left.live_o)

    def _row_writes(self, m, grid):
        """A row's strobe moves right; the data of column c waits c cycles."""
        strobe = self.write_en
        if self.config.b_transpose:
            strobe = strobe & ~self.write_column
        for row, line in enumerate(grid):
            m.d.comb += [
                line[0].row_strobe_i.eq(strobe & (self.write_index == row)),
                line[0].row_slot_i.eq(self.write_slot),
            ]
            for left, right in itertools.pairwise(line):
                m.d.comb += [
                    right.row_strobe_i.eq(left.row_strobe_o),
                    right.row_slot_i.eq(left.row_slot_o),
                ]
        for col in range(self.config.cols):
            late = delay(m, self.write_data[col], col)
            m.d.comb += [line[col].column_data.eq(late) for line in grid]

    def _column_writes(self, m, grid):
        """A column's strobe moves down; the data of row r waits r cycles."""
        strobe = self.write_en & self.write_column
        for col, element in enumerate(grid[0]):
            m.d.comb += [
                element.column_strobe_i.eq(strobe & (self.write_index == col)),
                element.column_slot_i.eq(self.write_slot),
            ]
        for above, below in itertools.pairwise(grid):
            for upper, lower in zip(above, below, strict=True):
                m.d.comb += [
                    lower.column_strobe_i.eq(upper.column_strobe_o),
                    lower.column_slot_i.eq(upper.column_slot_o),
                ]
        for row, line in enumerate(grid):
            late = delay(m, self.write_data[row], row)
            m.d.comb += [element.row_data.eq(late) for element in line]

    def _sums(self, m, grid):
        """Sums move down; those of the left columns wait for those of the right."""
        for above, below in itertools.pairwise(grid):
            for upper, lower in zip(above, below, strict=True):
                m.d.comb += lower.sum_i.eq(upper.sum_o)
        for col, element in enumerate(grid[-1]):
            m.d.comb += self.sums[col].eq(delay(m, element.sum_o, self.config.cols - 1 - col))
        m.d.comb += self.valid_o.eq(delay(m, self.valid_i, self.latency))
