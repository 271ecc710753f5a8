"""A multiplier of 32 bits that takes two bits of an operand in a cycle."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from hdl.component import Component

_STEPS = 16  # pairs of bits


class SerialMultiplier(Component):
    """The product of ``a`` and ``b``, both signed; with ``rounds``, plus ``2**30``.

    ``start`` takes the operands; ``busy`` is 1 in the 16 cycles behind it, and from the next one
    on ``p`` is the product, all 64 bits of it, until the next ``start``. Booth's recoding: two bits
    of ``b`` a cycle, and one addition of 0, one or two times ``a`` of either sign (Booth 1951,
    MacSorley 1961).
    """

    a: In(32)
    b: In(32)
    rounds: In(1)
    start: In(1)
    busy: Out(1)
    p: Out(64)

    def elaborate(self, _platform):
        m = Module()
        factor = Signal(32)
        high = Signal(signed(32))
        low = Signal(32)
        before = Signal()  # the bit of b below the two lowest of low
        left = Signal(range(_STEPS + 1))
        once, twice, negative = Signal(), Signal(), low[1]
        m.d.comb += [
            once.eq(low[0] ^ before),
            twice.eq((low[0] == before) & (low[1] != low[0])),
            self.busy.eq(left != 0),
            self.p.eq(Cat(low, high)),
        ]
        term = Signal(signed(33))
        for bit in range(33):
            mine = factor[min(bit, 31)]
            below = factor[bit - 1] if bit else 0
            m.d.comb += term[bit].eq(((once & mine) | (twice & below)) ^ negative)
        total = Signal(signed(34))
        m.d.comb += total.eq(high + term + negative)
        with m.If(self.start):
            m.d.sync += [
                factor.eq(self.a),
                low.eq(self.b),
                high.eq(self.rounds << 30),
                before.eq(0),
                left.eq(_STEPS),
            ]
        with m.Elif(self.busy):
            m.d.sync += [
                Cat(low, high).eq(Cat(low[2:], total)),
                before.eq(low[1]),
                left.eq(left - 1),
            ]
        return m
