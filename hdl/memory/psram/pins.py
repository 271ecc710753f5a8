"""The pins of PSRAM with HyperBus, and falling-edge registers for the chip's clock and its data."""

from amaranth.hdl import ClockDomain, ClockSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.psram import PsramChip
from celosia.hdl.component import Component

BACK = 2
"""Cycles from the cycle with a clock edge of the chip in its middle to the cycle with the data."""


class PsramPins(wiring.Signature):
    """The pins of PSRAM with HyperBus, seen from the controller; all outputs are registers.

    ``ck`` and ``ck_n`` change in the middle of a cycle. ``dq_o`` and ``rwds_o`` are driven if
    ``dq_oe`` and ``rwds_oe`` are 1. The first die has the lowest bits of ``dq`` and ``rwds``.
    """

    def __init__(self, chip: PsramChip):
        self.chip = chip
        super().__init__(
            {
                "ck": Out(1),
                "ck_n": Out(1, init=1),
                "cs_n": Out(1, init=1),
                "reset_n": Out(1),
                "dq_o": Out(8 * chip.dies),
                "dq_oe": Out(1),
                "dq_i": In(8 * chip.dies),
                "rwds_o": Out(chip.dies),
                "rwds_oe": Out(1),
                "rwds_i": In(chip.dies),
            }
        )


class HalfCycles(Component):
    """Registers on the falling edge of ``sync``, for the clock and the data of a PSRAM chip.

    - ``ck``, ``ck_n``: ``clock``, delayed by half a cycle, and its complement.
    - ``dq``, ``rwds``: the pins ``dq_i`` and ``rwds_i`` in the middle of the previous cycle.
    """

    def __init__(self, chip: PsramChip):
        pins = PsramPins(chip).members
        named = {name: pins[name] for name in ("ck", "ck_n", "dq_i", "rwds_i")}
        super().__init__(named | {"clock": In(1), "dq": Out(8 * chip.dies), "rwds": Out(chip.dies)})

    def circuit(self, m):
        m.domains.middle = ClockDomain(clk_edge="neg", reset_less=True, local=True)
        m.d.comb += ClockSignal("middle").eq(ClockSignal("sync"))
        for name, value in (("dq", self.dq_i), ("rwds", self.rwds_i)):
            there = getattr(self, name)
            held = Signal.like(there, name=f"{name}_held", reset_less=True)
            m.d.middle += held.eq(value)
            m.d.sync += there.eq(held)
        m.d.middle += [self.ck.eq(self.clock), self.ck_n.eq(~self.clock)]
