"""The array of the microcoded machine: products of stored weights and stored activations."""

from amaranth.hdl import Array, Cat, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.arch import records
from celosia.hdl.arithmetic.multiplier import MultiplierPair
from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram


class MicroArray(Component):
    """An array of ``rows`` by ``cols`` multipliers, with a memory of accumulator rows.

    In each cycle, an input at 1 has this effect:

    - ``weight``: the next weight is ``byte``.
    - ``weights``: the next two weights are the bytes of ``word``.
    - ``blank``: the next weight is 0.
    - ``enter``: the next activation is ``byte``.
    - ``enters``: the next two activations are the bytes of ``word``.
    - ``begin``: the next vector's sums go to accumulator row ``row``; later vectors' sums go to the
      rows after it.
    - ``take``: row ``row`` is read and cleared, at least three cycles after the last activation.
    - ``step``: ``sum`` advances by a column of this row, from column 0 in the cycle after ``take``.

    Weights are loaded row by row, with a 0 after each row if ``cols`` is odd.
    """

    def __init__(self, array: records.Array, accumulators: records.Accumulators):
        super().__init__(
            {
                "byte": In(8),
                "word": In(16),
                "weight": In(1),
                "weights": In(1),
                "blank": In(1),
                "enter": In(1),
                "enters": In(1),  # only in arrays of two rows
                "row": In((accumulators.depth - 1).bit_length()),
                # Not later than the vector's last activation, but later than the previous vector's.
                "begin": In(1),
                "take": In(1),
                "step": In(1),
                "sum": Out(signed(accumulators.width)),
            }
        )

    def circuit(self, m):
        enter_at, products = self._products(m)
        columns = [
            sum(row[column] for row in products[1:]) + products[0][column]
            for column in range(self.array.cols)
        ]
        complete = Signal()
        m.d.comb += complete.eq(self.enters | (self.enter & (enter_at == self.array.rows - 1)))
        self._accumulate(m, complete, columns)

    def _products(self, m):
        """Return the index of the next activation, and each row's products of two cycles before."""
        array, pairs = self.array, -(-self.array.cols // 2)
        width = array.operand_width
        operand, held = Signal(signed(8)), Signal(signed(8))
        low, high = (Signal(signed(8), name=name) for name in ("low", "high"))
        single = Signal()
        m.d.comb += [
            operand.eq(self.byte[:width].as_signed()),
            single.eq(self.weight | self.blank),
            low.eq(held),
            high.eq(operand),
        ]
        with m.If(self.blank):
            m.d.comb += operand.eq(0)
        with m.If(single):
            m.d.sync += held.eq(operand)
        with m.If(self.weights):
            m.d.comb += [
                low.eq(self.word[:width].as_signed()),
                high.eq(self.word[8 : 8 + width].as_signed()),
            ]
        # The first byte of a pair is kept until the second arrives.
        second = Signal()
        with m.If(single):
            m.d.sync += second.eq(~second)
        whole = Signal()
        m.d.comb += whole.eq(self.weights | (single & second))
        weight_at = self._counter(m, whole, pairs * array.rows)
        enter_at = self._counter(m, self.enter, array.rows)
        products = []
        for row in range(array.rows):
            row_products = []
            activation = Signal(signed(8), name=f"activation_{row}")
            m.d.comb += activation.eq(operand)
            with m.If(self.enters):
                part = 8 * (row % 2)
                m.d.comb += activation.eq(self.word[part : part + width].as_signed())
            for place in range(pairs):
                pair = MultiplierPair()
                m.submodules[f"pair_{row}_{place}"] = pair
                m.d.comb += [
                    pair.a_0.eq(low),
                    pair.a_1.eq(high),
                    pair.b_0.eq(activation),
                    pair.b_1.eq(activation),
                    pair.a_en.eq(whole & (weight_at == row * pairs + place)),
                    pair.b_en.eq(self.enters | (self.enter & (enter_at == row))),
                ]
                row_products += [pair.p_0, pair.p_1]
            products.append(row_products)
        return enter_at, products

    def _accumulate(self, m, complete, columns):
        """Add sums to a row when they are available, or read a row."""
        array, accumulators = self.array, self.accumulators
        width = accumulators.width
        m.submodules.acc = acc = Ram(width * array.cols, accumulators.depth, ordered=False)
        reads, adds, clears = Signal(), Signal(), Signal()
        row = Signal.like(self.row)
        m.d.sync += [reads.eq(complete), adds.eq(reads), clears.eq(self.take)]
        with m.If(self.begin):
            m.d.sync += row.eq(self.row)
        with m.Elif(reads):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            acc.read_en.eq(reads | self.take),
            acc.read_addr.eq(row),
            acc.write_en.eq(adds | clears),
        ]
        with m.If(self.take):
            m.d.comb += acc.read_addr.eq(self.row)
        m.d.sync += acc.write_addr.eq(acc.read_addr)
        held = [acc.read_data[width * each : width * (each + 1)] for each in range(array.cols)]
        with m.If(adds):
            totals = [(total + more)[:width] for total, more in zip(held, columns, strict=True)]
            m.d.comb += acc.write_data.eq(Cat(totals))
        column = Signal(range(max(2, array.cols)))
        with m.If(self.take):
            m.d.sync += column.eq(0)
        with m.Elif(self.step):
            m.d.sync += column.eq(column + 1)
        m.d.comb += self.sum.eq(Array(held)[column])

    def _counter(self, m, moves, count):
        """Return a register that counts to ``count - 1`` and restarts at 0."""
        value = Signal(range(max(2, count)))
        with m.If(moves):
            m.d.sync += value.eq(value + 1)
            with m.If(value == count - 1):
                m.d.sync += value.eq(0)
        return value
