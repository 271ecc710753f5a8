"""Checks the power-on image in a board's flash, and executes it.

The image is a list of records: requests to the host link (the circuit that also executes the host's
requests), and texts for the serial line.
"""

from amaranth.hdl import Array, Cat, Const, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from celosia.arch.flash import ADDR_WIDTH
from celosia.arch.link import ANSWER_HEADER, REQUEST_SYNC
from celosia.arch.link import CRC_BYTES as ANSWER_CRC_BYTES
from celosia.arch.power_on import (
    CRC_BYTES,
    ENTRIES,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    RECORD_HEADER,
    REFUSALS,
    Op,
    Refusal,
)
from celosia.hdl.component import Component
from celosia.hdl.flash.reader import READ
from celosia.hdl.link.executor import STATUS_WIDTH
from celosia.hdl.link.uart import RECEIVED
from celosia.hdl.stream.flow import Flow

_LINE = 32
_STATES = {
    Op.END: "OVER",
    Op.REQUEST: "SYNC",
    Op.TEXT: "TEXT",
    Op.LABEL: "TABLE",
    Op.CHOICE: "TABLE",
    Op.WAIT: "WAIT",
}
_LINE_BITS = exact_log2(_LINE)
_ENTRY_BITS = exact_log2(ENTRY_BYTES)
_LETTERS = b"".join(line.ljust(_LINE, b"\0") for line in REFUSALS.values())


class PowerOn(Component):
    """Checks the power-on image at flash address ``addr``, and executes its records.

    ``active`` is 1 until the last record is executed, or an error is reported. ``refused`` is 1
    from an error on, such as a wrong CRC, or a fingerprint other than ``configuration``. ``o``
    outputs the image's texts, or the reason of the error, to the serial line.
    """

    i: stream.Interface
    o: stream.Interface
    o_read: stream.Interface
    i_answer: stream.Interface
    request: wiring.PureInterface

    def __init__(self, configuration: int, addr: int, size: int):
        super().__init__(
            {
                "o_read": Out(stream.Signature(READ)),  # requests to the flash reader
                "i": In(stream.Signature(unsigned(8))),  # bytes from it
                "request": Out(Flow(RECEIVED)),  # to the host link
                "i_answer": In(stream.Signature(unsigned(8))),  # from the host link
                "status": In(STATUS_WIDTH),  # the register STATUS as the link read it last
                "o": Out(stream.Signature(unsigned(8))),
                "active": Out(1, init=1),
                "refused": Out(1),
            }
        )

    def circuit(self, m):
        m.submodules.crc = crc = CRC32_ISO_HDLC().create()
        m.submodules.letters = letters = Memory(
            shape=unsigned(8), depth=len(_LETTERS), init=_LETTERS
        )
        letter = letters.read_port()
        length = Signal(32)  # the body's bytes
        left = Signal(ADDR_WIDTH)  # bytes behind the next one that the reader was asked for
        ended = Signal()  # it has brought all of them
        place, count = Signal(16), Signal(16)  # count: bytes of a record or an answer that are left
        comes, over = Signal(), Signal()
        best = Signal(range(ENTRIES))
        reason = Signal(Refusal)
        m.d.comb += [
            comes.eq(self.i.valid & self.i.ready),
            over.eq(count == 0),
            crc.data.eq(self.i.payload),
            letter.addr.eq(Cat(place[:_LINE_BITS], reason)),
        ]
        with m.If(comes):
            m.d.sync += [left.eq(left - 1), count.eq(count - 1), ended.eq(left == 0)]
        with m.FSM():
            with m.State("BEGIN"):
                self._ask(m, left, ended, self.addr, HEADER_BYTES - 1, "HEADER")
            with m.State("HEADER"):
                self._header(m, comes, length, place, reason)
            with m.State("LENGTH"):
                most = self.size - self.addr - HEADER_BYTES - CRC_BYTES
                m.next = "CHECK"
                with m.If((length == 0) | (length > most)):
                    m.d.sync += reason.eq(Refusal.CORRUPT)
                    m.next = "REFUSE"
            # A first pass checks all of the image, so that no part of a damaged one is executed.
            with m.State("CHECK"):
                m.d.comb += crc.start.eq(1)
                final = length[:ADDR_WIDTH] + (HEADER_BYTES + CRC_BYTES - 1)
                self._ask(m, left, ended, self.addr, final, "SUM")
            with m.State("SUM"):
                m.d.comb += [self.i.ready.eq(~ended), crc.valid.eq(comes)]
                with m.If(ended):
                    m.d.sync += reason.eq(Refusal.CORRUPT)
                    m.next = "REFUSE"
                    with m.If(crc.match_detected):
                        m.d.sync += reason.eq(Refusal.STOPPED)
                        m.next = "PLAY"
            with m.State("PLAY"):
                m.d.sync += place.eq(0)
                final = length[:ADDR_WIDTH] - 1
                self._ask(m, left, ended, self.addr + HEADER_BYTES, final, "RECORD")
            self._records(m, comes, ended, place, count, over, best)
            self._requests(m, comes, ended, place, count, over, best)
            with m.State("REFUSE"):
                m.d.sync += [self.refused.eq(1), place.eq(0)]
                m.next = "LINE"
            with m.State("LINE"):
                m.next = "LETTER"
            with m.State("LETTER"):
                m.d.comb += [
                    self.o.payload.eq(letter.data),
                    self.o.valid.eq(letter.data != 0),
                ]
                with m.If(self.o.ready | ~self.o.valid):
                    m.d.sync += place.eq(place + 1)
                    m.next = "LINE"
                    with m.If(place == _LINE - 1):
                        m.next = "OVER"
            with m.State("OVER"):
                m.d.sync += self.active.eq(0)

    def _ask(self, m, left, ended, addr, last, then):
        """Request bytes from the reader."""
        m.d.comb += [
            self.o_read.valid.eq(1),
            self.o_read.payload.addr.eq(addr),
            self.o_read.payload.last.eq(last),
        ]
        with m.If(self.o_read.ready):
            m.d.sync += [left.eq(last), ended.eq(0)]
            m.next = then

    def _header(self, m, comes, length, place, reason):
        """Compare the header with this machine's; read all of it in any case."""
        wanted = MAGIC + self.configuration.to_bytes(4, "little")
        known = Array(Const(each, 8) for each in wanted)
        wrong = Signal()
        m.d.comb += self.i.ready.eq(1)
        with m.If(comes):
            m.d.sync += [place.eq(place + 1), length.eq(Cat(length[8:], self.i.payload))]
            with m.If((place < len(wanted)) & ~wrong & (self.i.payload != known[place[:3]])):
                m.d.sync += wrong.eq(1)
                with m.If(place >= len(MAGIC)):
                    m.d.sync += reason.eq(Refusal.OTHER)
            with m.If(place == HEADER_BYTES - 1):
                m.next = "LENGTH"
                with m.If(wrong):
                    m.next = "REFUSE"

    def _records(self, m, comes, ended, place, count, over, best):
        """Execute one record after another; reject an image without an end."""
        byte = self.i.payload
        op = Signal(8)
        with m.State("RECORD"):
            m.d.comb += self.i.ready.eq(~ended)
            with m.If(comes):
                m.d.sync += [place.eq(place + 1), Cat(op, count).eq(Cat(count, byte))]
                with m.If(place == RECORD_HEADER - 1):
                    m.d.sync += place.eq(0)
                    m.next = "OP"
            with m.Elif(ended):
                m.next = "REFUSE"
        with m.State("OP"):
            m.next = "REFUSE"
            with m.Switch(op):
                for each, state in _STATES.items():
                    with m.Case(each):
                        m.next = state
        with m.State("WAIT"), m.If(~self.status[0]):
            m.next = "RECORD"
            with m.If(self.status[1]):
                m.next = "REFUSE"
        with m.State("TEXT"):
            m.d.comb += [
                self.o.valid.eq(self.i.valid & ~over),
                self.i.ready.eq(self.o.ready & ~over),
                self.o.payload.eq(byte),
            ]
            self._go_on(m, over, ended, place)
        with m.State("TABLE"):
            here, shown, asks = Signal(), Signal(), Signal()
            m.d.comb += [
                here.eq(place[_ENTRY_BITS:] == best),
                asks.eq(op == Op.CHOICE),
                shown.eq(here & (byte != 0) & ~asks),
                self.o.valid.eq(self.i.valid & ~over & shown),
                self.i.ready.eq((self.o.ready | ~shown) & ~over),
                self.o.payload.eq(byte),
                self.request.valid.eq(comes & here & asks),
                self.request.payload.byte.eq(byte),
            ]
            with m.If(comes):
                m.d.sync += place.eq(place + 1)
            self._go_on(m, over, ended, place)
            # Without an entry the link would have no request to answer.
            with m.If(over & asks):
                m.next = "ANSWER"
                with m.If(place[_ENTRY_BITS:] <= best):
                    m.next = "REFUSE"

    def _go_on(self, m, over, ended, place):
        """Continue with the next record when this one's bytes are used up."""
        with m.If(over):
            m.d.sync += place.eq(0)
            m.next = "RECORD"
        with m.Elif(ended):
            m.next = "REFUSE"

    def _requests(self, m, comes, ended, place, count, over, best):
        """Send a request; read the status and the index of the largest number from its answer."""
        byte, answers = self.i_answer.payload, self.i_answer.valid
        bad, low = Signal(), Signal(8)
        greatest, number = Signal(signed(16)), Signal(signed(16))
        m.d.comb += number.eq(Cat(low, byte))
        with m.State("SYNC"):
            m.d.comb += [
                self.request.valid.eq(1),
                self.request.payload.byte.eq(REQUEST_SYNC),
            ]
            m.next = "SEND"
        with m.State("SEND"):
            m.d.comb += [
                self.i.ready.eq(~over & ~ended),
                self.request.valid.eq(comes),
                self.request.payload.byte.eq(self.i.payload),
            ]
            # The link also answers a truncated request.
            with m.If(over | ended):
                m.next = "ANSWER"
        with m.State("ANSWER"):
            m.d.comb += self.i_answer.ready.eq(1)
            with m.If(answers):
                m.d.sync += [place.eq(place + 1), count.eq(Cat(count[8:], byte))]
                with m.If(place == 1):
                    m.d.sync += bad.eq(byte != 0)
                with m.If(place == ANSWER_HEADER):
                    m.d.sync += place.eq(0)
                    m.next = "PAYLOAD"
        with m.State("PAYLOAD"):
            m.d.comb += self.i_answer.ready.eq(~over)
            with m.If(over):
                m.d.sync += place.eq(0)
                m.next = "CRC"
            with m.Elif(answers):
                m.d.sync += [count.eq(count - 1), place.eq(place + 1), low.eq(byte)]
                with m.If(place[0] & ((place == 1) | (number > greatest))):
                    m.d.sync += [greatest.eq(number), best.eq(place[1:])]
        with m.State("CRC"):
            m.d.comb += self.i_answer.ready.eq(1)
            with m.If(answers):
                m.d.sync += place.eq(place + 1)
                with m.If(place == ANSWER_CRC_BYTES - 1):
                    m.d.sync += place.eq(0)
                    m.next = "RECORD"
                    with m.If(bad):
                        m.next = "REFUSE"
