"""Turns rows into columns at full rate."""

from amaranth.hdl import Array, C, Cat, Module, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from arch.config import next_power_of_two
from hdl.component import Component
from hdl.memory.bank import rotate
from hdl.memory.ram import Ram


class Transposer(Component):
    """A ping-pong block of ``size`` x ``size`` elements, written by rows and read by columns.

    ``write_en`` writes ``write_data`` to row ``write_row`` of block ``write_block``; ``read_data``
    is column ``read_column`` of block ``read_block`` of the cycle before, its element r that of
    row r, of which the last one may be written in that very cycle. One block is filled while the
    other is read, so that a vector a cycle goes through, ``size`` cycles later at the earliest.

    Element c of row r lies in memory ``(c - r) mod size`` at address r, so that the elements of a
    row lie in different memories, and those of a column, too: in place of a choice between all
    elements of a row, for each row, there is a rotation before the memories and one behind them.
    """

    def __init__(self, size: int, width: int):
        self.size = size
        self.width = width
        vector = data.ArrayLayout(unsigned(width), size)
        super().__init__(
            {
                "write_en": In(1),
                "write_block": In(1),
                "write_row": In(range(size)),
                "write_data": In(vector),
                "read_block": In(1),
                "read_column": In(range(size)),
                "read_data": Out(vector),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        size = self.size
        column = Signal.like(self.read_column)
        m.d.sync += column.eq(self.read_column)
        written = rotate(m, "write", [self.write_data[c] for c in range(size)], self.write_row)
        found = []
        for place in range(size):
            m.submodules[f"memory_{place}"] = memory = Ram(
                self.width, 2 * next_power_of_two(size), transparent=True
            )
            rows = Array(C((c - place) % size, range(size)) for c in range(size))
            m.d.comb += [
                memory.write_en.eq(self.write_en),
                memory.write_addr.eq(Cat(self.write_row, self.write_block)),
                memory.write_data.eq(written[place]),
                memory.read_en.eq(1),
                memory.read_addr.eq(Cat(rows[self.read_column], self.read_block)),
            ]
            found.append(memory.read_data)
        found = rotate(m, "read", found, column)
        m.d.comb += [self.read_data[row].eq(found[-row % size]) for row in range(size)]
        return m
