"""The pins of PSRAM with HyperBus, and the registers at them."""

from amaranth.hdl import ClockDomain, ClockSignal, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.psram import PsramChip
from celosia.hdl.component import Component

BACK = 2
"""Cycles from one whose middle has an edge of the chip's clock to the one that has its data."""


class PsramPins(wiring.Signature):
    """The pins, seen from the controller; all outputs are registers.

    ``ck`` and ``ck_n``, the chip's clock and its complement, change in the middle of a cycle, all
    others at its beginning; ``cs_n`` and ``reset_n`` are low where they mean something. ``dq_o``
    is driven where ``dq_oe`` is 1, ``rwds_o`` where ``rwds_oe`` is; ``dq_i`` and ``rwds_i`` are
    read. Of several dies each has eight bits of data, the first one the lowest, and one of RWDS;
    the other pins of all of them are one.
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
    """The registers in the middle of a cycle: of the chip's clock, and of what the chip drives.

    ``ck`` and ``ck_n`` are what ``clock``, a register, is from half a cycle after it on. ``dq`` and
    ``rwds`` are what the pins were a cycle and a half before: what an edge of ``ck`` in some
    cycle's middle brings is there ``BACK`` cycles after that cycle.
    """

    def __init__(self, chip: PsramChip):
        pins = PsramPins(chip).members
        given = {name: pins[name] for name in ("ck", "ck_n", "dq_i", "rwds_i")}
        super().__init__(given | {"clock": In(1), "dq": Out(8 * chip.dies), "rwds": Out(chip.dies)})

    def elaborate(self, _platform):
        m = Module()
        m.domains.middle = ClockDomain(clk_edge="neg", reset_less=True, local=True)
        m.d.comb += ClockSignal("middle").eq(ClockSignal("sync"))
        for name, value in (("dq", self.dq_i), ("rwds", self.rwds_i)):
            there = getattr(self, name)
            held = Signal.like(there, name=f"{name}_held", reset_less=True)
            m.d.middle += held.eq(value)
            m.d.sync += there.eq(held)
        m.d.middle += [self.ck.eq(self.clock), self.ck_n.eq(~self.clock)]
        return m
