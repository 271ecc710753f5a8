"""Turns rows into columns at full rate."""

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out


class TransposerRow(wiring.Component):
    """A row of both blocks: ``write_en`` has a bit for each, ``read_data`` is one element."""

    def __init__(self, size: int, width: int):
        self.size = size
        self.width = width
        super().__init__(
            {
                "write_en": In(2),
                "write_data": In(data.ArrayLayout(unsigned(width), size)),
                "read_block": In(1),
                "read_column": In(range(size)),
                "read_data": Out(width),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        elements = []
        for block in range(2):
            held = Signal(self.write_data.shape(), name=f"block_{block}")
            with m.If(self.write_en[block]):
                m.d.sync += held.eq(self.write_data)
            elements.append(Array(held[column] for column in range(self.size))[self.read_column])
        m.d.comb += self.read_data.eq(Mux(self.read_block, elements[1], elements[0]))
        return m


class Transposer(wiring.Component):
    """A ping-pong block of ``size`` x ``size`` elements, written by rows and read by columns.

    ``write_en`` writes ``write_data`` to row ``write_row`` of block ``write_block``; ``read_data``
    is column ``read_column`` of block ``read_block``, its element r that of row r, in the same
    cycle. One block is filled while the other is read, so that a vector a cycle goes through,
    ``size`` cycles later at the earliest.
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
        block = Mux(self.write_block, 0b10, 0b01)
        for index in range(self.size):
            row = TransposerRow(self.size, self.width)
            m.submodules[f"row_{index}"] = row
            m.d.comb += [
                row.write_en.eq(Mux(self.write_en & (self.write_row == index), block, 0)),
                row.write_data.eq(self.write_data),
                row.read_block.eq(self.read_block),
                row.read_column.eq(self.read_column),
                self.read_data[index].eq(row.read_data),
            ]
        return m
