"""A multiplier with the registers that hardware multipliers have."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Multiplier(wiring.Component):
    """Signed product with a register at each operand and one at the product.

    ``p`` is ``a * b`` of two cycles before. With ``gating``, the operands' registers take ``a`` and
    ``b`` in cycles with ``en`` only, and the product's becomes 0 in cycles with ``clear``. No
    register follows the reset: what comes out within two cycles of it is stale.

    A module of its own, without parameters, so that a build for a device with multipliers that have
    these registers can put one in its place (``fpga.multipliers``); this is its meaning. Raises
    :class:`ValueError` where ``width`` (bits) is not a positive integer.
    """

    def __init__(self, width: int, *, gating: bool):
        if width < 1:
            raise ValueError(f"Multiplier width must be a positive integer, not {width!r}")
        self.width = width
        self.gating = gating
        members = {
            "a": In(signed(width)),
            "b": In(signed(width)),
            "p": Out(signed(2 * width)),
        }
        if gating:
            members |= {"en": In(1), "clear": In(1)}
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        left = Signal(signed(self.width), reset_less=True)
        right = Signal(signed(self.width), reset_less=True)
        product = Signal(signed(2 * self.width), reset_less=True)
        operands = [left.eq(self.a), right.eq(self.b)]
        m.d.comb += self.p.eq(product)
        m.d.sync += product.eq(left * right)
        if self.gating:
            with m.If(self.en):
                m.d.sync += operands
            with m.If(self.clear):
                m.d.sync += product.eq(0)
        else:
            m.d.sync += operands
        return m
