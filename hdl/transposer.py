"""Turns rows into columns at full rate."""

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out


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
        for row in range(self.size):
            columns = []
            for block in range(2):
                held = Signal(self.write_data.shape(), name=f"row_{row}_{block}")
                selected = (self.write_row == row) & (self.write_block == block)
                with m.If(self.write_en & selected):
                    m.d.sync += held.eq(self.write_data)
                columns.append(Array(held[column] for column in range(self.size)))
            m.d.comb += self.read_data[row].eq(
                Mux(
                    self.read_block,
                    columns[1][self.read_column],
                    columns[0][self.read_column],
                )
            )
        return m
