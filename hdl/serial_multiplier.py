"""A multiplier of 32 bits that takes two bits of an operand in a cycle."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

_STEPS = 17  # pairs of bits in 32 bits and a sign
_LOW = 2 * _STEPS


class SerialMultiplier(wiring.Component):
    """The product of ``a`` and ``b``, both signed or, with ``unsigned``, both unsigned.

    ``start`` takes the operands; ``busy`` is 1 in the 17 cycles behind it, and from the next one
    on ``p`` is the product, all 64 bits of it, until the next ``start``. Booth's recoding: two bits
    of ``b`` a cycle, and one addition of 0, one or two times ``a`` of either sign (Booth 1951,
    MacSorley 1961).
    """

    a: In(32)
    b: In(32)
    unsigned: In(1)
    start: In(1)
    busy: Out(1)
    p: Out(64)

    def elaborate(self, _platform):
        m = Module()
        factor = Signal(signed(33))
        high = Signal(signed(35))
        low = Signal(_LOW)
        before = Signal()  # the bit of b below the two lowest of low
        left = Signal(range(_STEPS + 1))
        once, twice, negative = Signal(), Signal(), low[1]
        m.d.comb += [
            once.eq(low[0] ^ before),
            twice.eq((low[0] == before) & (low[1] != low[0])),
            self.busy.eq(left != 0),
            self.p.eq(Cat(low, high)),
        ]
        term = Signal(signed(34))
        for bit in range(34):
            mine = factor[min(bit, 32)]
            below = factor[bit - 1] if bit else 0
            m.d.comb += term[bit].eq(((once & mine) | (twice & below)) ^ negative)
        total = Signal(signed(35))
        m.d.comb += total.eq(high + term + negative)
        with m.If(self.start):
            m.d.sync += [
                factor.eq(Cat(self.a, self.a[31] & ~self.unsigned)),
                low.eq(Cat(self.b, (self.b[31] & ~self.unsigned).replicate(2))),
                high.eq(0),
                before.eq(0),
                left.eq(_STEPS),
            ]
        with m.Elif(self.busy):
            m.d.sync += [
                Cat(low, high).eq(Cat(low[2:], total, total[-1].replicate(2))),
                before.eq(low[1]),
                left.eq(left - 1),
            ]
        return m
