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


class MicroAlu(Component):
    """A combinational 32-bit ALU for operands ``a`` and ``b``; ``control`` selects the operation.

    The fields of ``control`` are single bits. ``sum`` is ``a + b + carry``, or
    ``a - b - 1 + carry`` if ``subtract`` is 1. ``zero`` is 1 if ``sum`` is 0. If ``subtract`` and
    ``carry`` are 1, ``less`` is 1 if ``a`` is less than ``b``. The operands are compared as
    unsigned numbers if ``unsigned`` is 1, else as signed numbers.

    The bits ``result_1`` and ``result_0`` form a number that selects ``result``:

    === ============================================================================================
    0   ``sum``
    1   a logic operation, the smaller operand or the larger operand (see below)
    2   ``a`` shifted by the low 5 bits of ``b``, to the left if ``left`` is 1, else to the right,
        with copies of the sign if ``arithmetic`` is 1
    3   ``less``
    === ============================================================================================

    For result 1, ``extreme`` selects between two groups of operations:

    - ``extreme`` is 0: the bits ``logic_1`` and ``logic_0`` form the number of a logic operation.
      With c as ``b``, or ``~b`` if ``subtract`` is 1, operation 0 is ``a & c``, 1 is ``a | c``, 2
      is ``a`` and 3 is ``~c``.
    - ``extreme`` is 1: the smaller operand if ``logic_0`` is 0, the larger operand if it is 1.
      ``subtract`` and ``carry`` must be 1.
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
