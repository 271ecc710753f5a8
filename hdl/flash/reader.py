"""A reader for SPI flash."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.flash import ADDR_WIDTH, READS, WAITED, FlashChip, FlashStep, start_up
from celosia.hdl.component import Component

READ = data.StructLayout({"addr": unsigned(ADDR_WIDTH), "last": unsigned(ADDR_WIDTH)})
"""Layout of a request for ``last + 1`` bytes from byte address ``addr`` on."""

_COMMAND = 8  # bits


class FlashPins(wiring.Signature):
    """The pins of an SPI flash, seen from the reader; all outputs are registers.

    ``sck`` is the clock and ``cs_n`` the select line. ``dq_o`` drives those data lines whose bit of
    ``dq_oe`` is 1; ``dq_i`` is their value. With one lane, line 0 is the flash's input and line 1
    its output.
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


def _of(stage: Signal, values: Sequence[int], width: int) -> Value:
    """Return the value for the bit of the one-hot ``stage`` that is 1."""

    def bit(place: int) -> Value:
        bits = [bool(value >> place & 1) for value in values]
        few = sum(bits) <= len(bits) // 2
        chosen = Cat(stage[at] for at, each in enumerate(bits) if each == few).any()
        return chosen if few else ~chosen

    return Cat(bit(place) for place in range(width))


class FlashReader(Component):
    """Reads bytes from an SPI flash ``chip``, on 1 or 4 data lines (``lanes``).

    ``i`` receives requests for adjacent bytes, and ``o`` returns the bytes. ``half`` is half a
    period of the flash clock, in cycles. A byte takes ``16 * half / lanes`` cycles, and each
    request takes about ``80 * half`` cycles more. Raises :class:`InputError` if ``lanes`` is
    neither 1 nor 4.
    """

    i: stream.Interface
    o: stream.Interface
    pins: wiring.PureInterface

    def __init__(self, chip: FlashChip, clock: float, lanes: int = 1):
        if lanes not in READS:
            raise InputError(f"Lanes of a flash must be 1 or 4, not {lanes!r}")
        self.timing = chip.at(clock)
        # They wake the flash, which an iCE40 leaves in power-down, and end its other modes.
        self.steps = start_up(chip, lanes)
        super().__init__(
            {
                "i": In(stream.Signature(READ)),
                "o": Out(stream.Signature(unsigned(8))),
                "pins": Out(FlashPins()),
            }
        )

    def circuit(self, m):
        times, pins = self.timing, self.pins
        # Two bits of a long time are precise enough, and need fewer lookup tables.
        top = 1 << times.wake.bit_length() - 1
        waits = top + (1 << (times.wake - top - 1).bit_length() if times.wake - top > 1 else 1)
        longest = max(times.half, times.deselect, waits + 1, times.power)
        timer = Signal(range(longest), init=times.power - 1)
        over = Signal()
        # The lines change as the clock falls: the bits left to send, and their clocks.
        # Levels hold: the next step begins with a 1, or has a bit for each line.
        levels = [len(each.line) == 1 for each in self.steps]
        sent = "".join(each.line for each in self.steps[sum(levels) :])
        moves = sent[0] == "0"
        sent = "1" * sum(levels) * moves + sent
        width = max(_COMMAND + ADDR_WIDTH, len(sent))
        rest = Signal(width, init=int(sent.ljust(width, "1"), 2))
        others = Signal(3, init=0b111)
        clocks = Signal(range(_COMMAND + ADDR_WIDTH + WAITED))
        last = Signal(ADDR_WIDTH)
        reads, starts, level = Signal(), Signal(), Signal()
        # One-hot: the start-up steps, and last the read command.
        stage = Signal(len(self.steps) + 1, init=1)
        steps = (*self.steps, FlashStep("", _COMMAND + ADDR_WIDTH + WAITED))
        byte = Signal(8)
        m.d.comb += [
            over.eq(timer == 0),
            starts.eq(~stage[-1]),
            level.eq(_of(stage, [*levels, False], 1)),
            pins.dq_o.eq(Cat(rest[-1], others)),
            self.o.payload.eq(byte),
        ]
        with m.If(~over):
            m.d.sync += timer.eq(timer - 1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(over & ~starts)
                with m.If(over & (starts | self.i.valid)):
                    with m.If(~starts):
                        command = Cat(self.i.payload.addr, Const(READS[self.lanes], _COMMAND))
                        m.d.sync += rest.eq(command << (width - _COMMAND - ADDR_WIDTH))
                    m.d.sync += [
                        others.eq(_of(stage, [each.others for each in steps], 3)),
                        clocks.eq(_of(stage, [each.clocks - 1 for each in steps], len(clocks))),
                        last.eq(self.i.payload.last),
                        pins.cs_n.eq(0),
                        pins.dq_oe.eq(0b1101 | _of(stage, [each.quad for each in steps], 1) << 1),
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
                    byte.eq(Cat(come, byte)),
                    clocks.eq(clocks - 1),
                ]
                with m.If(~level | (clocks == 0) if moves else ~level):
                    m.d.sync += rest.eq(rest << 1)
                if self.lanes == 4:
                    with m.If(~starts & ~reads & (clocks == WAITED)):
                        m.d.sync += pins.dq_oe.eq(0)
                m.next = "LOW"
                with m.If(clocks == 0):
                    m.d.sync += [clocks.eq(8 // self.lanes - 1), reads.eq(1)]
                    with m.If(starts):
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
                m.d.sync += [pins.cs_n.eq(1), timer.eq(times.deselect - 1), reads.eq(0)]
                with m.If(starts):
                    m.d.sync += [timer.eq(waits), stage.eq(stage << 1)]
                m.next = "IDLE"
