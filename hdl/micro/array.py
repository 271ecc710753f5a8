"""The array of the microcoded machine: products of held weights with held activations."""

from amaranth.hdl import Array, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from arch.micro.config import MicroConfig
from hdl.arithmetic.multiplier import MultiplierPair
from hdl.component import Component


class MicroArray(Component):
    """``rows`` by ``cols`` multipliers, in pairs, and one column's sum at a time.

    ``byte`` brings an operand: in cycles with ``weight`` the next weight, with ``enter`` the next
    activation, with ``blank`` the weight 0. Weights come column by column, in each row by row;
    behind an odd number of rows comes one more of both, the weight 0. ``sum`` is the sum of weight
    times activation over the rows of a column, in the fourth cycle behind the last operand;
    ``step`` moves it to the next column, two cycles later.
    """

    def __init__(self, config: MicroConfig):
        self.config = config
        self._pairs = -(-config.rows // 2)
        width = 16 + (2 * self._pairs - 1).bit_length()
        super().__init__(
            {
                "byte": In(8),
                "weight": In(1),
                "blank": In(1),
                "enter": In(1),
                "step": In(1),
                "sum": Out(signed(width)),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        config, pairs = self.config, self._pairs
        operand = Signal(signed(8))
        held = Signal(signed(8))
        weight = Signal()
        m.d.comb += [
            operand.eq(self.byte[: config.operand_width].as_signed()),
            weight.eq(self.weight | self.blank),
        ]
        with m.If(self.blank):
            m.d.comb += operand.eq(0)
        with m.If(weight | self.enter):
            m.d.sync += held.eq(operand)
        weight_at = self._counter(m, weight, 2 * pairs * config.cols)
        enter_at = self._counter(m, self.enter, 2 * pairs)
        column = self._counter(m, self.step, config.cols)
        chosen = [(Signal(signed(16)), Signal(signed(16))) for _ in range(pairs)]
        for row in range(pairs):
            products = []
            for place in range(config.cols):
                pair = MultiplierPair()
                m.submodules[f"pair_{row}_{place}"] = pair
                number = place * pairs + row
                m.d.comb += [
                    pair.a_0.eq(held),
                    pair.a_1.eq(operand),
                    pair.b_0.eq(held),
                    pair.b_1.eq(operand),
                    pair.a_en.eq(weight & (weight_at == 2 * number + 1)),
                    pair.b_en.eq(self.enter & (enter_at == 2 * row + 1)),
                ]
                products.append((pair.p_0, pair.p_1))
            for half, product in enumerate(chosen[row]):
                m.d.comb += product.eq(Array(pair[half] for pair in products)[column])
        m.d.sync += self.sum.eq(_tree([product for pair in chosen for product in pair]))
        return m

    def _counter(self, m, moves, count):
        """Return a register that counts to ``count - 1`` and begins again."""
        value = Signal(range(max(2, count)))
        with m.If(moves):
            m.d.sync += value.eq(value + 1)
            with m.If(value == count - 1):
                m.d.sync += value.eq(0)
        return value


def _tree(values):
    """Return the sum of values, added in pairs."""
    while len(values) > 1:
        odd = values[len(values) // 2 * 2 :]
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]
