"""Bytes out of an SPI flash."""

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from arch.errors import InputError
from arch.flash import ADDR_WIDTH, READS, WAITED, WAKE, FlashChip
from hdl.component import Component

READ = data.StructLayout({"addr": unsigned(ADDR_WIDTH), "last": unsigned(ADDR_WIDTH)})
"""Request for ``last + 1`` bytes from byte address ``addr`` on."""

_COMMAND = 8  # bits


class FlashPins(wiring.Signature):
    """The pins, seen from the reader; all outputs are registers.

    ``sck`` is the clock and ``cs_n`` selects. ``dq_o`` is driven where ``dq_oe`` is 1, ``dq_i`` is
    read; line 0 is the chip's data input and line 1 its output where there is one lane, lines 2
    and 3 are its inputs WP and HOLD, which are 1 then.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "sck": Out(1),
                "cs_n": Out(1, init=1),
                "dq_o": Out(4, init=0b1100),
                "dq_oe": Out(4, init=0b1101),
                "dq_i": In(4),
            }
        )


class FlashReader(Component):
    """Reads bytes out of a flash in mode 0 (idle clock low, sampled as it rises).

    ``i`` says what to read, and ``o`` brings the bytes in order; while nobody takes one the flash's
    clock stands still. A byte takes ``16 * half / lanes`` cycles, one more where ``half`` is 1, the
    first some ``80 * half`` more; ``half`` is that of :class:`arch.flash.FlashTiming` at ``clock``
    Hz.
    The next request is taken after the last byte and the chip's rest. At first the flash is woken,
    as an iCE40 leaves it in power-down.

    Commands are those of the data sheets of W25Q128JV and IS25LP128F: Fast Read with one lane, Fast
    Read Quad Output with four, for which the chip's bit QE must be set. A data line is looked at
    as the clock falls, so that a bit has a whole period to travel.

    Raises :class:`InputError` where ``lanes`` is not 1 or 4.
    """

    i: stream.Interface
    o: stream.Interface
    pins: wiring.PureInterface

    def __init__(self, chip: FlashChip, clock: float, lanes: int = 1):
        if lanes not in READS:
            raise InputError(f"Lanes of a flash must be 1 or 4, not {lanes!r}")
        self.timing = chip.at(clock)
        self.lanes = lanes
        super().__init__(
            {
                "i": In(stream.Signature(READ)),
                "o": Out(stream.Signature(unsigned(8))),
                "pins": Out(FlashPins()),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        times, pins = self.timing, self.pins
        longest = max(times.half, times.deselect, times.wake, times.power)
        timer = Signal(range(longest), init=times.power - 1)
        over = Signal()
        # The lines change as the clock falls: what is left to send, and clocks of what is sent.
        rest = Signal(_COMMAND + ADDR_WIDTH)
        clocks = Signal(range(_COMMAND + ADDR_WIDTH + WAITED))
        last = Signal(ADDR_WIDTH)
        reads, wakes = Signal(), Signal()
        byte = Signal(8)
        m.d.comb += [
            over.eq(timer == 0),
            pins.dq_o.eq(Cat(rest[-1], Const(0b110, 3))),
            self.o.payload.eq(byte),
        ]
        with m.If(~over):
            m.d.sync += timer.eq(timer - 1)
        with m.FSM():
            with m.State("POWER"), m.If(over):
                m.d.sync += [
                    rest.eq(WAKE << ADDR_WIDTH),
                    clocks.eq(_COMMAND - 1),
                    wakes.eq(1),
                    pins.cs_n.eq(0),
                    timer.eq(times.half - 1),
                ]
                m.next = "LOW"
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(over)
                with m.If(over & self.i.valid):
                    m.d.sync += [
                        rest.eq(Cat(self.i.payload.addr, Const(READS[self.lanes], _COMMAND))),
                        clocks.eq(_COMMAND + ADDR_WIDTH + WAITED - 1),
                        last.eq(self.i.payload.last),
                        pins.cs_n.eq(0),
                        pins.dq_oe.eq(0b1101),
                        timer.eq(times.half - 1),
                    ]
                    m.next = "LOW"
            with m.State("LOW"), m.If(over):
                m.d.sync += [pins.sck.eq(1), timer.eq(times.half - 1)]
                m.next = "HIGH"
            with m.State("HIGH"), m.If(over):
                come = pins.dq_i if self.lanes == 4 else pins.dq_i[1]
                m.d.sync += [
                    pins.sck.eq(0),
                    timer.eq(times.half - 1),
                    rest.eq(rest << 1),
                    byte.eq(Cat(come, byte)),
                    clocks.eq(clocks - 1),
                ]
                if self.lanes == 4:
                    with m.If(~wakes & ~reads & (clocks == WAITED)):
                        m.d.sync += pins.dq_oe.eq(0)
                m.next = "LOW"
                with m.If(clocks == 0):
                    m.d.sync += [clocks.eq(8 // self.lanes - 1), reads.eq(1)]
                    with m.If(wakes):
                        m.next = "END"
                    with m.Elif(reads):
                        m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += last.eq(last - 1)
                    m.next = "LOW"
                    with m.If(last == 0):
                        m.next = "END"
            with m.State("END"), m.If(over):
                m.d.sync += [
                    pins.cs_n.eq(1),
                    timer.eq(times.deselect - 1),
                    reads.eq(0),
                    wakes.eq(0),
                ]
                with m.If(wakes):
                    m.d.sync += timer.eq(times.wake - 1)
                m.next = "IDLE"
        return m
