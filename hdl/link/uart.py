"""A UART for the serial line: 8 data bits, no parity, one stop bit."""

from amaranth.hdl import Cat, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.hdl.component import Component
from celosia.hdl.stream.flow import Flow

SMALLEST_DIVISOR = 4
"""Fewest cycles per bit with which the receiver can sample the middle of a bit."""

RECEIVED = data.StructLayout({"byte": unsigned(8), "broken": 1})
"""Layout of a received byte; ``broken``: the stop bit was not 1, and ``byte`` may be wrong."""


def check_divisor(divisor: int) -> None:
    """Raise :class:`InputError` if a serial line's ``divisor`` (cycles per bit) is less than 4."""
    if divisor < SMALLEST_DIVISOR:
        raise InputError(
            f"UART divisor must be at least {SMALLEST_DIVISOR} cycles a bit, not {divisor}"
        )


def tolerance(divisor: int) -> float:
    """Return the fraction by which a sender's bits may be shorter than the receiver's bits.

    ``divisor`` is the receiver's number of cycles per bit. For an even divisor, the result is
    ``(divisor / 2 - 1) / (10 * divisor)``. Raises :class:`InputError` if ``divisor`` is less than
    4.
    """
    check_divisor(divisor)
    # The stop bit's middle, perhaps sampled one cycle late, must precede the next start bit.
    return (divisor - divisor // 2 - 1) / (10 * divisor)


class UartReceiver(Component):
    """Converts the line ``rx`` to bytes; a bit takes ``divisor`` cycles.

    ``o`` has a byte in the cycle after the middle of its stop bit. If this bit is 0, ``broken`` is
    1, and reception stops until the line is 1. Raises :class:`InputError` if the divisor is less
    than 4. See also :func:`tolerance`.
    """

    rx: In(1, init=1)
    o: Out(Flow(RECEIVED))

    def __init__(self, divisor: int):
        check_divisor(divisor)
        super().__init__()

    def circuit(self, m):
        samples = Signal(5, init=0b11111)
        m.d.sync += samples.eq(Cat(self.rx, samples))
        a, b, c = samples[2:]
        level = Signal()
        m.d.comb += level.eq((a & b) | (b & c) | (a & c))

        timer = Signal(range(self.divisor))
        bits = Signal(8)
        place = Signal(range(10))  # 0 is the start bit, 9 the stop bit
        m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                # Four cycles after the edge, as are all samples.
                m.d.sync += [timer.eq(self.divisor // 2 - 1), place.eq(0)]
                with m.If(~level):
                    m.next = "BITS"
            with m.State("BITS"):
                m.d.sync += timer.eq(timer - 1)
                with m.If(timer == 0):
                    m.d.sync += [timer.eq(self.divisor - 1), place.eq(place + 1)]
                    with m.If(place == 9):
                        m.d.sync += [
                            self.o.valid.eq(1),
                            self.o.payload.byte.eq(bits),
                            self.o.payload.broken.eq(~level),
                        ]
                        # The second half of the stop bit is slack for a faster sender.
                        m.next = "IDLE"
                        with m.If(~level):
                            m.next = "BROKEN"
                    with m.Else():
                        m.d.sync += bits.eq(Cat(bits[1:], level))
                    with m.If((place == 0) & level):
                        m.next = "IDLE"
            with m.State("BROKEN"), m.If(level):
                m.next = "IDLE"


class UartTransmitter(Component):
    """Sends the bytes of ``i`` on the line ``tx``; a bit takes ``divisor`` cycles.

    A byte takes ``10 * divisor`` cycles from its acceptance; a waiting byte follows without a
    pause. ``tx`` is a register. Raises :class:`InputError` if the divisor is less than 4.
    """

    i: In(stream.Signature(unsigned(8)))
    tx: Out(1, init=1)

    def __init__(self, divisor: int):
        check_divisor(divisor)
        super().__init__()

    def circuit(self, m):
        timer = Signal(range(self.divisor))
        left = Signal(range(11))  # bits not finished
        rest = Signal(9, init=0x1FF)
        last = Signal()
        m.d.comb += [
            last.eq((timer == 0) & (left <= 1)),
            self.i.ready.eq(last),
        ]
        with m.If(self.i.ready):
            with m.If(self.i.valid):
                m.d.sync += [
                    timer.eq(self.divisor - 1),
                    left.eq(10),
                    self.tx.eq(0),
                    rest.eq(Cat(self.i.payload, 1)),
                ]
            with m.Else():
                m.d.sync += left.eq(0)
        with m.Elif(timer == 0):
            m.d.sync += [
                timer.eq(self.divisor - 1),
                left.eq(left - 1),
                self.tx.eq(rest[0]),
                rest.eq(Cat(rest[1:], 1)),
            ]
        with m.Else():
            m.d.sync += timer.eq(timer - 1)
