"""The receiver of requests: finds frames in a byte stream and checks them."""

from amaranth.hdl import Cat, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.crc.catalog import CRC16_IBM_3740
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.link import CRC_BYTES, READS, REQUEST_HEADER, REQUEST_SYNC
from celosia.hdl.component import Component
from celosia.hdl.link.uart import RECEIVED
from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.flow import Flow

HEADER = data.StructLayout(
    {"command": unsigned(8), "tag": unsigned(8), "length": unsigned(16), "addr": unsigned(32)}
)
"""Layout of the header of a request, the fields after the sync byte."""

REQUEST = data.StructLayout({"header": HEADER, "corrupt": 1})
"""Layout of a received request; the header of a ``corrupt`` request is undefined."""


class RequestReceiver(Component):
    """Assembles the bytes of ``i`` into requests of the host link.

    ``o`` offers the header of a request. Meanwhile, ``payload_data`` is the byte of the request's
    payload that ``payload_addr`` selected in the previous cycle. A request that pauses for
    ``timeout`` cycles is offered as corrupt. Raises :class:`InputError` if ``payload_bytes``, the
    size of the longest payload, is no power of two from 32 to 32768.
    """

    def __init__(self, payload_bytes: int, timeout: int):
        if payload_bytes & (payload_bytes - 1) or not 32 <= payload_bytes <= 32768:
            raise InputError(
                f"Link payload must be a power of two from 32 to 32768 bytes, not {payload_bytes}"
            )
        super().__init__(
            {
                "i": In(Flow(RECEIVED)),
                "o": Out(stream.Signature(REQUEST)),
                "payload_addr": In((payload_bytes - 1).bit_length()),
                "payload_data": Out(8),
            }
        )

    def circuit(self, m):
        m.submodules.crc = crc = CRC16_IBM_3740().create()
        m.submodules.payload = payload = Ram(8, self.payload_bytes, ordered=False)
        header = self.o.payload.header
        byte, comes = self.i.payload.byte, self.i.valid
        place = Signal(16)
        quiet = Signal(range(self.timeout + 1))
        over = Signal()
        m.d.comb += [
            over.eq(quiet == self.timeout),
            crc.data.eq(byte),
            payload.read_en.eq(1),
            payload.read_addr.eq(self.payload_addr),
            self.payload_data.eq(payload.read_data),
            payload.write_addr.eq(place),
            payload.write_data.eq(byte),
        ]
        with m.If(comes):
            m.d.sync += [quiet.eq(0), place.eq(place + 1)]
        with m.Elif(~over):
            m.d.sync += quiet.eq(quiet + 1)

        carried, long = Signal(), Signal()
        final = Signal.like(header.length)  # place of the payload's last byte
        m.d.sync += final.eq(header.length - 1)
        m.d.comb += [
            carried.eq(~Cat(header.command == command for command in READS).any()),
            long.eq(carried & (header.length > self.payload_bytes)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.o.payload.corrupt.eq(0)
                with m.If(comes & ~self.i.payload.broken & (byte == REQUEST_SYNC)):
                    m.d.comb += crc.start.eq(1)
                    m.d.sync += place.eq(0)
                    m.next = "HEADER"
            with m.State("HEADER"):
                with m.If(comes):
                    m.d.comb += crc.valid.eq(1)
                    m.d.sync += header.as_value().eq(Cat(header.as_value()[8:], byte))
                    with m.If(place == REQUEST_HEADER - 1):
                        m.d.sync += place.eq(0)
                        m.next = "LENGTH"
                self._give_up(m, over)
            with m.State("LENGTH"):
                m.next = "CRC"
                with m.If(carried & (header.length != 0)):
                    m.next = "PAYLOAD"
                with m.If(long):
                    m.next = "DRAIN"
            with m.State("PAYLOAD"):
                with m.If(comes):
                    m.d.comb += [crc.valid.eq(1), payload.write_en.eq(1)]
                    with m.If(place == final):
                        m.d.sync += place.eq(0)
                        m.next = "CRC"
                self._give_up(m, over)
            with m.State("CRC"):
                with m.If(comes):
                    m.d.comb += crc.valid.eq(1)
                    with m.If(place == CRC_BYTES - 1):
                        m.next = "CHECK"
                self._give_up(m, over)
            with m.State("CHECK"):
                m.next = "DRAIN"
                with m.If(crc.match_detected):
                    m.next = "OFFER"
            # A corrupt request is offered after a pause: its last bytes are no request.
            with m.State("DRAIN"):
                m.d.sync += self.o.payload.corrupt.eq(1)
                with m.If(over):
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"

    def _give_up(self, m, over):
        """Drop a request if a byte is broken or missing."""
        with m.If((self.i.valid & self.i.payload.broken) | over):
            m.next = "DRAIN"
