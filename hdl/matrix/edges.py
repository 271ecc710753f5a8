"""Delay registers at the edges of the systolic array; the delay depends on the row or column."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import gated_width
from celosia.hdl.stream.fields import assign, inputs, outputs
from celosia.hdl.stream.pipeline import delay, history, ring, stairs


class ActivationEdge(Component):
    """The array's left edge: delays the activation and weight slot number of row r by r + 1 cycles.

    A weight slot stores one tile of weights. If the configuration has the option
    ``operand_gating``, bit r of ``o_live`` is 1 if row r's activation is not zero and its vector
    has ``valid`` at 1. ``zeros`` is the number of zero activations in the vector that entered two
    cycles earlier. Without such a vector, ``zeros`` is 0.
    """

    def __init__(self, config: MatrixConfig):
        self.array = config.array
        rows, slot = config.array.rows, range(config.array.weight_depth)
        operands = data.ArrayLayout(signed(config.element_width), rows)
        members = {
            "valid": In(1),
            "a": In(operands),
            "slot": In(slot),
            "o_a": Out(operands),
            "o_slot": Out(data.ArrayLayout(slot, rows)),
        }
        gating = config.array.operand_gating
        super().__init__(members | outputs(o_live=gating * rows, zeros=gated_width(config)))

    def circuit(self, m):
        slot, rows = self.slot, self.array.rows
        if self.array.sleep:
            # A row's registers shift while one of them belongs to a vector.
            entered = history(m, self.valid, rows - 1)
            waiting = [
                ring(m, a, row + 1, en=Cat(entered[: row + 1]).any())
                for row, a in enumerate(self.a)
            ]
        else:
            waiting = stairs(m, list(self.a))
        for row, a in enumerate(waiting):
            slot = delay(m, slot, 1)
            m.d.comb += [self.o_a[row].eq(a), self.o_slot[row].eq(slot)]
        if self.array.operand_gating:
            nonzero = Signal(rows)
            zero = Signal(rows)
            m.d.comb += nonzero.eq(Cat(a != 0 for a in self.a))
            live = stairs(m, [self.valid & bit for bit in nonzero], reset=True)
            m.d.comb += self.o_live.eq(Cat(live))
            m.d.sync += [zero.eq(Mux(self.valid, ~nonzero, 0)), self.zeros.eq(sum(zero))]


class SleepEdge(Component):
    """The array's upper edge in a configuration with ``sleep``: disables unused columns.

    A vector enters in a cycle with ``valid`` at 1, and uses columns 0 to ``n - 1``. If the vector
    uses column c, bit c of ``o`` is 1 after ``c + 1`` cycles, and enables the column. The registers
    of a disabled column hold, which saves power. If ``together[c]`` is true, column c is the right
    column of a pair that shares multipliers. A vector that uses column c - 1 then also enables
    column c.
    """

    def __init__(self, *, together: Sequence[bool]):
        self.together = tuple(together)
        cols = len(self.together)
        super().__init__({"valid": In(1), "n": In(range(cols + 1)), "o": Out(cols)})

    def circuit(self, m):
        awake = [self.valid & (self.n > col - late) for col, late in enumerate(self.together)]
        m.d.comb += self.o.eq(Cat(stairs(m, awake, reset=True)))


class WeightEdge(Component):
    """The array's left and upper edges for weights: distribute a line of weights to the elements.

    A line is a row of weights, or a column if ``column`` is 1. In a cycle with ``en`` at 1,
    ``data`` has the weights of a line, and ``index`` is the number of the array row or column that
    stores them. An element of the array stores a weight in the cycle in which a strobe (a bit at 1)
    reaches it.

    One cycle after a row of weights arrives, bit ``index`` of ``o_row`` is 1. This strobe enters
    the array at the left, and moves by one column per cycle. ``o_data`` delays element c of the
    line by c + 1 cycles, so that the element and the strobe reach column c in the same cycle. For a
    column of weights, bit ``index`` of ``o_column`` is 1 instead. This strobe enters at the top,
    and moves down by one row per cycle; element r of the line, delayed by r + 1 cycles, is for row
    r. ``o_slot`` is ``slot``, the number of the weight slot (storage for one tile), one cycle
    later.
    """

    def __init__(self, config: MatrixConfig):
        self.array = config.array
        self.lines = config.lines
        line = data.ArrayLayout(signed(config.element_width), config.line_elements)
        slot = range(config.array.weight_depth)
        members = {
            "en": In(1),
            "slot": In(slot),
            "index": In(range(config.lines)),
            "data": In(line),
            "o_slot": Out(slot),
            "o_row": Out(config.array.rows),
            "o_data": Out(line),
        }
        transpose = config.array.b_transpose
        members |= outputs(o_live=config.array.operand_gating * config.line_elements)
        members |= inputs(column=transpose) | outputs(o_column=transpose * config.array.cols)
        super().__init__(members)

    def circuit(self, m):
        column = self.column if self.array.b_transpose else 0
        m.d.sync += self.o_slot.eq(self.slot)
        here = Cat(self.en & (self.index == index) for index in range(self.lines))
        m.d.sync += self.o_row.eq(Mux(column, 0, here))
        m.d.sync += assign(self, o_column=Mux(column, here, 0))
        # Row writes and column writes share the same delay registers.
        for out, element in zip(self.o_data, stairs(m, list(self.data)), strict=True):
            m.d.comb += out.eq(element)
        if self.array.operand_gating:
            m.d.comb += self.o_live.eq(Cat(stairs(m, [element != 0 for element in self.data])))


class SumEdge(Component):
    """The array's lower edge: delays the sums of a vector so that all columns leave in one cycle.

    ``i`` has one sum for each of the ``cols`` columns. On ``o``, all sums of a vector leave in the
    same cycle. ``valid`` must be 1 if a vector of activations enters the array's left edge.
    ``o_valid`` is ``valid`` delayed by ``latency`` cycles, the time from these activations to their
    sums on ``o``.

    Activations move to the right by one column per cycle, so a column's sum arrives one cycle later
    than the sum of the column to the left. ``late[c]`` is an additional latency of column c
    (cycles), and can be negative. So the edge delays the sum of column c by
    ``cols - 1 - c - late[c]`` cycles. This number must be from 0 to ``cols - 1``.
    """

    def __init__(self, *, late: Sequence[int], width: int, latency: int, sleep: bool = False):
        self.late = tuple(late)
        self.cols = cols = len(self.late)
        sums = data.ArrayLayout(signed(width), cols)
        super().__init__({"valid": In(1), "i": In(sums), "o_valid": Out(1), "o": Out(sums)})

    def circuit(self, m):
        entered = history(m, self.valid, self.latency)
        m.d.comb += self.o_valid.eq(entered[-1])
        waits = [self.cols - 1 - col - late for col, late in enumerate(self.late)]
        together = [
            [col for col, wait in enumerate(waits) if wait == cycles] for cycles in range(self.cols)
        ]
        first, *sums = [Cat(self.i[col] for col in cols) for cols in together]
        if self.sleep:
            # A column's registers shift while one of them belongs to a vector.
            delayed = [
                ring(m, value, wait, en=Cat(entered[-1 - wait : -1]).any())
                for wait, value in enumerate(sums, 1)
            ]
        else:
            delayed = stairs(m, sums)
        for cols, value in zip(together, [first, *delayed], strict=True):
            m.d.comb += Cat(self.o[col] for col in cols).eq(value)
