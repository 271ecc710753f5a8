"""The arithmetic of the microcoded machine's core."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

ALU_CONTROL = data.StructLayout(
    dict.fromkeys(
        (
            "subtract",
            "carry",
            "logic_0",
            "logic_1",
            "extreme",
            "unsigned",
            "left",
            "arithmetic",
            "result_0",
            "result_1",
        ),
        1,
    )
)
"""Layout of the control bits of :class:`MicroAlu`."""


# Bits of ``control`` that are 1 for each value of ``result``:
#
# a + b               none
# a - b               subtract, carry
# a & b               result_0
# a & ~b              result_0, subtract
# a | b               result_0, logic_0
# a | ~b              result_0, logic_0, subtract
# a                   result_0, logic_1
# ~b                  result_0, logic_1, logic_0
# b                   result_0, logic_1, logic_0, subtract
# smaller of a and b  result_0, extreme, subtract, carry
# larger of a and b   as the smaller, and logic_0
# a shifted left      result_1, left
# a shifted right     result_1, and arithmetic for copies of the sign
# 1 if a < b, or 0    result_1, result_0, subtract, carry
#
# A shift is by the number in the low 5 bits of b.


class MicroAlu(Component):
    """A combinational 32-bit ALU for operands ``a`` and ``b``; ``control`` selects ``result``.

    ``subtract``, ``carry`` and ``unsigned`` are bits of ``control``. ``sum`` is ``a + b + carry``,
    or ``a + ~b + carry`` if ``subtract`` is 1. ``zero`` is 1 if ``sum`` is 0. If ``subtract`` and
    ``carry`` are 1, ``less`` is 1 if ``a < b``. This comparison takes a and b as unsigned numbers
    if ``unsigned`` is 1, otherwise as signed numbers.
    """

    a: In(32)
    b: In(32)
    control: In(ALU_CONTROL)
    sum: Out(32)
    result: Out(32)
    less: Out(1)
    zero: Out(1)

    def circuit(self, m):
        control, a = self.control, self.a
        other = Signal(32)
        total = Signal(33)
        m.d.comb += [
            other.eq(self.b ^ control.subtract.replicate(32)),
            total.eq(a + other + control.carry),
            self.sum.eq(total),
            # A sum of 0 has a carry out of each bit where either operand is 1, for any carry in.
            self.zero.eq((a ^ other) == Cat(control.carry, (a | other)[:-1])),
            # Unsigned: a carry means that a is not less. Signed: differing signs decide.
            self.less.eq(Mux((a[31] == other[31]) & ~control.unsigned, a[31], ~total[32])),
        ]
        kind, choice = Signal(2), Signal(2)
        m.d.comb += [
            kind.eq(Cat(control.logic_0, control.logic_1)),
            choice.eq(Cat(control.result_0, control.result_1)),
        ]
        with m.If(control.extreme):
            m.d.comb += kind.eq(Cat(control.logic_0 == self.less, 1))
        logic = Signal(32)
        m.d.comb += [
            logic.eq(Array([a & other, a | other, a, ~other])[kind]),
            self.result.eq(Array([self.sum, logic, self._shift(m), self.less])[choice]),
        ]

    def _shift(self, m):
        """Return ``a`` shifted right, or left by shifting its reversed bits."""
        left = self.control.left
        value = Signal(32)
        m.d.comb += value.eq(Mux(left, self.a[::-1], self.a))
        sign = Signal()
        m.d.comb += sign.eq(self.control.arithmetic & self.a[31])
        for step in reversed(range(5)):
            moved = Signal(32, name=f"moved_{1 << step}")
            further = Cat(value[1 << step :], sign.replicate(1 << step))
            m.d.comb += moved.eq(Mux(self.b[step], further, value))
            value = moved
        return Mux(left, value[::-1], value)
