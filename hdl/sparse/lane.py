"""One lane of the sparse unit, which multiplies a part of a sparse matrix by activations."""

from amaranth.hdl import Cat, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.arch.latency import load_bytes
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.records import Sparse
from celosia.arch.sparse import ENTRY_WIDTH, NOTHING, RUN_WIDTH, VALUE_WIDTH
from celosia.hdl.component import Component

BANKS = 2
"""Number of rows of activations in a lane: one is used while the other is loaded."""


def sum_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a column's sum: tile, position of the column in the tile, and sum."""
    return data.StructLayout(
        {
            "tile": unsigned(ENTRY_WIDTH),
            "column": range(config.array.cols),
            "sum": signed(config.accumulators.width),
        }
    )


class SparseLane(Component):
    """Multiplies a range of a sparse matrix's elements by activations, and outputs column sums.

    ``k`` is the number of rows of the matrix. For each row of activations, the sender uses these
    inputs in this order:

    - ``begin``: bits 0, 1 and 2, one after another, load tile, column and row of the first element
      from ``field``.
    - ``take``: processes the entry on ``field``, a number of zeros (``zeros``) and then, if
      ``product`` is 1, a weight. ``take`` must be 0 while ``stall`` is 1.
    - ``finish``: ends the row, at least ``LANE_LATENCY`` cycles later, if ``idle`` is 1.

    ``o`` outputs the sum of each column. ``x_en`` writes activations ``x_data`` to word ``x_addr``
    of bank ``x_bank``. Products use activations of bank ``bank``, minus their zero point ``zero``.
    """

    def __init__(self, config: MatrixConfig, sparse: Sparse):
        self.longest_row = sparse.longest_row
        load = load_bytes(config.access)
        members = {
            "k": In(ENTRY_WIDTH + 1),
            "begin": In(3),
            "field": In(ENTRY_WIDTH),
            "take": In(1),
            "stall": Out(1),
            "product": Out(1),
            "zeros": Out(2 * RUN_WIDTH),
            "finish": In(1),
            "idle": Out(1),
            "bank": In(1),
            "x_en": In(1),
            "x_bank": In(1),
            "x_addr": In(range(self.longest_row // load)),
            "x_data": In(data.ArrayLayout(8, load)),
            "o": Out(stream.Signature(sum_layout(config))),
        }
        if config.array.zero_points:
            members["zero"] = In(signed(config.array.operand_width))
        super().__init__(members)

    def circuit(self, m):
        config = self.config
        load = load_bytes(config.access)
        value = self.field[:VALUE_WIDTH].as_signed()
        run = self.field[VALUE_WIDTH:]
        place, entry, nothing = Signal(ENTRY_WIDTH + 1), Signal(ENTRY_WIDTH + 1), Signal()
        ahead = Signal(ENTRY_WIDTH + 2)
        over = Signal(signed(ENTRY_WIDTH + 3))
        leaves, given = Signal(), Signal()
        m.d.comb += [
            self.product.eq(value != 0),
            nothing.eq(~self.product & (run == NOTHING)),
            self.zeros.eq(Mux(self.product, run, Mux(nothing, 0, (run + 1) << RUN_WIDTH))),
            ahead.eq(place + self.zeros),
            over.eq(ahead - self.k),
            leaves.eq(~over[-1] & ~nothing),
            entry.eq(Mux(leaves, over, ahead)),
            self.stall.eq(leaves & given),
        ]
        with m.If(self.begin[2]):
            m.d.sync += place.eq(self.field)
        with m.Elif(self.take & ~nothing):
            m.d.sync += place.eq(entry + self.product)

        # One stage per operation; a name's suffix is the stage that writes it.
        word_bits = (load - 1).bit_length()
        m.submodules.x = memory = Memory(
            shape=unsigned(8 * load), depth=BANKS * self.longest_row // load, init=[]
        )
        write, read = memory.write_port(), memory.read_port()
        place_1 = Signal(entry.shape(), reset_less=True)
        element_2 = Signal(range(load), reset_less=True)
        weight_1, weight_2, weight_3 = (
            Signal(signed(config.array.operand_width), reset_less=True, name=f"weight_{i}")
            for i in (1, 2, 3)
        )
        x_3 = Signal(signed(config.element_width), reset_less=True)
        product_4 = Signal(
            signed(config.element_width + config.array.operand_width), reset_less=True
        )
        valid = [Signal(name=f"valid_{i}") for i in (1, 2, 3, 4)]
        left = [Signal(name=f"left_{i}") for i in (1, 2, 3, 4)]
        x_2 = Signal(signed(config.array.operand_width))
        zero = self.zero if config.array.zero_points else 0
        m.d.comb += [
            write.en.eq(self.x_en),
            write.addr.eq(Cat(self.x_addr, self.x_bank)),
            write.data.eq(self.x_data),
            read.en.eq(valid[0]),
            read.addr.eq(Cat(place_1[word_bits : word_bits + len(self.x_addr)], self.bank)),
            x_2.eq(read.data.word_select(element_2, 8)),
        ]
        m.d.sync += [
            place_1.eq(entry),
            weight_1.eq(value),
            Cat(valid).eq(Cat(self.take & self.product, valid)),
            Cat(left).eq(Cat(self.take & leaves, left)),
            element_2.eq(place_1),
            weight_2.eq(weight_1),
            weight_3.eq(weight_2),
            x_3.eq(x_2 - zero),
            product_4.eq(x_3 * weight_3),
        ]

        # The sum of the completed column waits in a separate register.
        total = Signal(signed(config.accumulators.width))
        tile, column = Signal(ENTRY_WIDTH), Signal(range(config.array.cols))
        final = column == config.array.cols - 1
        passes = self.o.valid & self.o.ready
        m.d.comb += self.idle.eq(~given & ~self.o.valid)
        with m.If(passes):
            m.d.sync += [self.o.valid.eq(0), given.eq(0)]
        with m.If(self.take & leaves):
            m.d.sync += given.eq(1)
        with m.If(left[3] | self.finish):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.p.sum.eq(total),
                self.o.p.tile.eq(tile),
                self.o.p.column.eq(column),
                total.eq(Mux(valid[3], product_4, 0)),
                column.eq(Mux(final, 0, column + 1)),
                tile.eq(tile + final),
            ]
        with m.Elif(valid[3]):
            m.d.sync += total.eq(total + product_4)
        with m.If(self.begin[0]):
            m.d.sync += tile.eq(self.field)
        with m.If(self.begin[1]):
            m.d.sync += column.eq(self.field)
