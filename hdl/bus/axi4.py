"""The external memory port as an AXI4 manager."""

from pathlib import Path

from amaranth.hdl import Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from celosia.arch.records import Memory
from celosia.arch.tables import read_table
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.component import Component
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort, burst_layout
from celosia.hdl.stream.slice import RegisterSlice

BURSTS_AHEAD = 16
"""Most write bursts that may be outstanding."""

INCR = 0b01
"""AXI burst type INCR: the address increases by one word with each beat."""

CACHE = 0b0011
"""AXI memory attributes (AxCACHE): normal, non-cacheable, bufferable."""

PORT_MEANINGS = read_table(Path(__file__).with_name("signals.toml"))["axi4"]
"""Dictionary from each AXI signal to its meaning."""


def axi4_members(memory: Memory, addr_width: int) -> dict[str, wiring.Member]:
    """Return a dictionary from the name of each AXI4 manager signal to its direction and width.

    A name is, for example, ``m_axi_awaddr``. The dictionary has no clock and no reset.
    """
    address = {"id": 1, "addr": addr_width, "len": 8, "size": 3, "burst": 2, "lock": 1}
    address |= {"cache": 4, "prot": 3, "qos": 4}
    members = {}
    for channel in ("aw", "ar"):
        members |= {f"m_axi_{channel}{name}": Out(width) for name, width in address.items()}
        members |= {f"m_axi_{channel}valid": Out(1), f"m_axi_{channel}ready": In(1)}
    return members | {
        "m_axi_wdata": Out(memory.width),
        "m_axi_wstrb": Out(memory.word_bytes),
        "m_axi_wlast": Out(1),
        "m_axi_wvalid": Out(1),
        "m_axi_wready": In(1),
        "m_axi_bid": In(1),
        "m_axi_bresp": In(2),
        "m_axi_bvalid": In(1),
        "m_axi_bready": Out(1),
        "m_axi_rid": In(1),
        "m_axi_rdata": In(memory.width),
        "m_axi_rresp": In(2),
        "m_axi_rlast": In(1),
        "m_axi_rvalid": In(1),
        "m_axi_rready": Out(1),
    }


class Axi4Bridge(Component):
    """Connects the external memory port to AXI4 as a manager (AMBA AXI, IHI 0022).

    Each burst becomes one INCR burst of full-width beats, and must not cross a multiple of 4096
    bytes. Throughput is one beat per cycle. ``failed`` is 1 for one cycle after each error
    response. ``error`` is 1 from the first error response until reset.
    """

    port_meanings = PORT_MEANINGS
    addresses: BusAddress

    def __init__(self, memory: Memory, addresses: BusAddress):
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "failed": Out(1),
                "error": Out(1),
                **axi4_members(memory, addresses.width),
            }
        )

    def circuit(self, m):
        m.submodules.lengths = lengths = SyncFIFO(width=8, depth=BURSTS_AHEAD)
        self._addresses(m, "ar", self.read.request, 1)
        self._addresses(m, "aw", self.write.request, lengths.w_rdy)
        request = self.write.request
        m.d.comb += [
            lengths.w_data.eq(request.p.last),
            lengths.w_en.eq(request.valid & request.ready),
        ]
        self._write(m, lengths)
        wrong = Signal()
        m.d.comb += [
            self.m_axi_bready.eq(1),
            wrong.eq(self._read(m) | (self.m_axi_bvalid & self.m_axi_bresp[1])),
        ]
        m.d.sync += [
            self.write.written.eq(self.m_axi_bvalid),
            self.failed.eq(wrong),
            self.error.eq(self.error | wrong),
        ]

    def _addresses(self, m, channel, request, may):
        """Pass requests to an address channel in cycles with ``may``."""
        passed = RegisterSlice(burst_layout(self.memory))
        m.submodules[channel] = passed
        m.d.comb += [
            passed.i.p.eq(request.p),
            passed.i.valid.eq(request.valid & may),
            request.ready.eq(passed.i.ready & may),
        ]
        burst = passed.o.p

        def port(name):
            return getattr(self, f"m_axi_{channel}{name}")

        m.d.comb += [
            port("addr").eq(self.addresses.of(burst.addr)),
            port("len").eq(burst.last),
            port("size").eq((self.memory.word_bytes - 1).bit_length()),
            port("burst").eq(INCR),
            port("cache").eq(CACHE),
            port("valid").eq(passed.o.valid),
            passed.o.ready.eq(port("ready")),
        ]

    def _read(self, m):
        """Pass read data on; return whether a beat has an error response."""
        beat = data.StructLayout({"data": unsigned(self.memory.width), "wrong": 1})
        m.submodules.r = passed = RegisterSlice(beat)
        words = self.read.data
        m.d.comb += [
            passed.i.p.data.eq(self.m_axi_rdata),
            passed.i.p.wrong.eq(self.m_axi_rresp[1]),
            passed.i.valid.eq(self.m_axi_rvalid),
            self.m_axi_rready.eq(passed.i.ready),
            words.p.eq(passed.o.p.data),
            words.valid.eq(passed.o.valid),
            passed.o.ready.eq(words.ready),
        ]
        return words.valid & words.ready & passed.o.p.wrong

    def _write(self, m, lengths):
        """Pass write data on, and mark the last beat of each burst."""
        memory, words = self.memory, self.write.data
        beat = {
            "data": unsigned(memory.width),
            "mask": unsigned(memory.word_bytes),
            "last": 1,
        }
        m.submodules.w = passed = RegisterSlice(data.StructLayout(beat))
        place = Signal(8)
        taken = Signal()
        m.d.comb += [
            passed.i.p.data.eq(words.p.data),
            passed.i.p.mask.eq(words.p.mask),
            passed.i.p.last.eq(place == lengths.r_data),
            passed.i.valid.eq(words.valid & lengths.r_rdy),
            words.ready.eq(passed.i.ready & lengths.r_rdy),
            taken.eq(words.valid & words.ready),
            lengths.r_en.eq(taken & passed.i.p.last),
            self.m_axi_wdata.eq(passed.o.p.data),
            self.m_axi_wstrb.eq(passed.o.p.mask),
            self.m_axi_wlast.eq(passed.o.p.last),
            self.m_axi_wvalid.eq(passed.o.valid),
            passed.o.ready.eq(self.m_axi_wready),
        ]
        with m.If(taken):
            m.d.sync += place.eq(Mux(passed.i.p.last, 0, place + 1))
