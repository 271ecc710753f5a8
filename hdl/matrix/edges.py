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

    A weight slot stores one tile.
    """

    valid: Signal
    """1 if ``a`` is a vector of activations."""
    a: data.View
    """Activation of each row."""
    slot: Signal
    """The weight slot that the vector on ``a`` uses."""
    o_a: data.View
    """Activation of row r, r + 1 cycles after ``a``."""
    o_slot: data.View
    """Weight slot of row r, r + 1 cycles after ``slot``."""
    o_live: Signal
    """Bit r is 1 if the activation of row r on ``o_a`` is valid and not zero."""
    zeros: Signal
    """Number of zero activations of the valid vector of two cycles earlier, else 0."""

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
    """The array's upper edge with the option ``sleep``: enables the columns that a vector uses.

    A vector enters with ``valid`` at 1, and uses columns 0 to ``n - 1``. Bit c of ``o`` is 1 after
    ``c + 1`` cycles if the vector uses column c. If ``together[c]`` is true, bit c is also 1 if the
    vector uses column c - 1.
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

    - ``en``: 1 if ``data`` is a line: array row ``index``, or column ``index`` if ``column`` is 1.
    - ``o_row``, ``o_column``: strobe of row or column ``index``, one cycle later.
    - ``o_slot``: ``slot`` (storage for one tile), one cycle later.
    - ``o_data``: element i of ``data``, i + 1 cycles later.
    - ``o_live``: bit i is 0 if element i of ``o_data`` is zero.
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

    The sum of column c is delayed by ``cols - 1 - c - late[c]`` cycles, at least 0. ``late[c]`` is
    the column's additional latency. ``o_valid`` is ``valid``, ``latency`` cycles later.
    """

    valid: Signal
    """1 with each vector, ``latency`` cycles before its sums leave."""
    i: data.View
    """Sum of each column, as the column outputs it."""
    o: data.View
    """Sums of a vector, all columns in the same cycle."""

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
