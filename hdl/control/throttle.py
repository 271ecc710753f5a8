"""Thermal throttling of the machine's memory accesses."""

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.ports import ThermalPort


class Throttle(Component):
    """Slows down a hot machine: its memories move data in only one of every ``period`` cycles.

    The machine is hot from ``temperature`` above ``hot`` until ``temperature`` below ``cool``.
    ``hold`` is 1 in the cycles in which the memories must not move data; it follows ``temperature``
    by two cycles.
    """

    def __init__(self, period: int):
        super().__init__({"thermal": In(ThermalPort()), "hold": Out(1)})

    def circuit(self, m):
        thermal, throttled = self.thermal, Signal()
        left = Signal(range(self.period))
        with m.If(thermal.temperature > thermal.hot):
            m.d.sync += throttled.eq(1)
        with m.Elif(thermal.temperature < thermal.cool):
            m.d.sync += throttled.eq(0)
        m.d.sync += [left.eq(left - 1), self.hold.eq(throttled & (left != 0))]
        with m.If(left == 0):
            m.d.sync += left.eq(self.period - 1)
