"""An SPI peripheral for the host link: mode 0, most significant bit first."""

from amaranth.hdl import Cat, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.link.uart import RECEIVED
from celosia.hdl.stream.flow import Flow

FILL = 0x00
"""The byte that is sent if ``i`` has no byte."""

LATE = 3
"""Largest number of cycles from a falling edge of ``sck`` to the new bit on ``cipo``."""

CYCLES = 12
"""Fewest machine cycles in a period of ``sck``, half at each level. The peripheral takes ``LATE``
cycles of a half; the rest is for pads, wires in both directions, and the host's setup time."""


class SpiPeripheral(Component):
    """Converts the lines of an SPI bus in mode 0 to bytes, and bytes to lines.

    ``o`` outputs received bytes; ``i`` has the bytes to send. Without a byte on ``i``, the
    peripheral sends ``FILL``. If ``cs_n`` rises within a byte, ``o`` outputs it with ``broken`` at
    1, and the byte being sent is lost.
    """

    sck: In(1)
    """Clock of the host, of at least ``CYCLES`` cycles a period."""
    cs_n: In(1, init=1)
    """Select line: 0 at least half a period before ``sck`` rises for the first time."""
    copi: In(1)
    """Data from the host."""
    cipo: Out(1)
    """Data to the host, ``LATE`` cycles or less after ``sck`` falls; always driven."""
    o: Out(Flow(RECEIVED))
    i: In(stream.Signature(unsigned(8)))

    def circuit(self, m):
        clocks, selects, bits = Signal(3), Signal(3, init=0b111), Signal(2)
        m.d.sync += [
            clocks.eq(Cat(self.sck, clocks)),
            selects.eq(Cat(self.cs_n, selects)),
            bits.eq(Cat(self.copi, bits)),
        ]
        selected, begins, ends = Signal(), Signal(), Signal()
        rises, falls = Signal(), Signal()
        m.d.comb += [
            selected.eq(~selects[1]),
            begins.eq(~selects[1] & selects[2]),
            ends.eq(selects[1] & ~selects[2]),
            rises.eq(selected & clocks[1] & ~clocks[2]),
            falls.eq(selected & ~clocks[1] & clocks[2]),
        ]
        count = Signal(3)
        received = Signal(7)
        going = Signal(8)
        waits = Signal()  # a byte of i that is not sent yet
        load = Signal()
        m.d.comb += [self.cipo.eq(going[-1]), self.i.ready.eq(load)]
        m.d.sync += self.o.valid.eq(0)
        with m.If(rises):
            m.d.sync += [count.eq(count + 1), received.eq(Cat(bits[1], received))]
            with m.If(count == 7):
                m.d.sync += [
                    self.o.valid.eq(1),
                    self.o.payload.byte.eq(Cat(bits[1], received)),
                    self.o.payload.broken.eq(0),
                    waits.eq(0),
                ]
        with m.If(falls):
            m.d.sync += going.eq(going << 1)
        m.d.comb += load.eq((falls & (count == 0)) | (begins & ~waits))
        with m.If(load):
            m.d.sync += [going.eq(FILL), waits.eq(self.i.valid)]
            with m.If(self.i.valid):
                m.d.sync += going.eq(self.i.payload)
        with m.If(ends & (count != 0)):
            m.d.sync += [
                count.eq(0),
                waits.eq(0),
                self.o.valid.eq(1),
                self.o.payload.broken.eq(1),
            ]
