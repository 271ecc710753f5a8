"""A harness that registers all inputs and outputs of a unit, to place and time the unit alone."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

FOLD = 4
"""Number of bits that one LUT of the parity tree combines."""


class Harness(Component):
    """A unit whose inputs are driven by a shift register, and whose outputs are registered.

    - ``i``: shifted into the unit's inputs, one bit per cycle.
    - ``o``: parity of the registers at the outputs, after a few pipeline stages.
    """

    i: In(1)
    o: Out(1)

    def __init__(self, unit: Component):
        self.unit = unit
        super().__init__()

    def circuit(self, m: Module) -> None:
        """Connect the unit between its input shift register and the parity tree of its outputs."""
        m.submodules.unit = self.unit
        inputs, outputs = [], []
        for _, member, value in self.unit.signature.flatten(self.unit):
            (inputs if member.flow == In else outputs).append(Value.cast(value))
        driven = Cat(inputs)
        chain = Signal(len(driven), reset_less=True)
        m.d.sync += chain.eq(Cat(self.i, chain))
        m.d.comb += driven.eq(chain)
        bits = list(Cat(outputs))
        level = 0
        while level == 0 or len(bits) > 1:
            count = 1 if level == 0 else FOLD
            held = Signal(-(-len(bits) // count), name=f"fold_{level}", reset_less=True)
            for index, bit in enumerate(held):
                m.d.sync += bit.eq(Cat(bits[index * count : (index + 1) * count]).xor())
            bits = list(held)
            level += 1
        m.d.comb += self.o.eq(bits[0])
