"""The host port as an AXI4-Lite subordinate."""

from pathlib import Path

from amaranth.hdl import Signal
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from celosia.arch.tables import read_table
from celosia.hdl.component import Component
from celosia.hdl.ports import HostPort

ADDR_WIDTH = 10
"""Width of a register's byte address (bits)."""

PORT_MEANINGS = read_table(Path(__file__).with_name("signals.toml"))["axi4-lite"]
"""Dictionary from each AXI4-Lite signal to its meaning."""


class Response(enum.Enum, shape=2):
    """AXI response codes of the subordinate: success (OKAY) and error (SLVERR)."""

    OKAY = 0b00
    SLVERR = 0b10


class Axi4LiteControl(Component):
    """Connects the register bus ``host`` to AXI4-Lite as a subordinate (AMBA AXI, IHI 0022).

    Register n is the word at byte 4n. A write takes three cycles, a read four; waiting writes and
    reads alternate. A write of fewer than four bytes has no effect, and is answered by SLVERR.
    """

    port_meanings = PORT_MEANINGS

    host: Out(HostPort())
    s_axil_awaddr: In(ADDR_WIDTH)
    s_axil_awprot: In(3)
    s_axil_awvalid: In(1)
    s_axil_awready: Out(1)
    s_axil_wdata: In(32)
    s_axil_wstrb: In(4)
    s_axil_wvalid: In(1)
    s_axil_wready: Out(1)
    s_axil_bresp: Out(Response)
    s_axil_bvalid: Out(1)
    s_axil_bready: In(1)
    s_axil_araddr: In(ADDR_WIDTH)
    s_axil_arprot: In(3)
    s_axil_arvalid: In(1)
    s_axil_arready: Out(1)
    s_axil_rdata: Out(32)
    s_axil_rresp: Out(Response)
    s_axil_rvalid: Out(1)
    s_axil_rready: In(1)

    def circuit(self, m):
        host = self.host
        whole, wrote, writes = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.eq(self.s_axil_awvalid & self.s_axil_wvalid),
            whole.eq(self.s_axil_wstrb.all()),
        ]
        m.d.sync += [
            host.write_en.eq(0),
            self.s_axil_awready.eq(0),
            self.s_axil_wready.eq(0),
            self.s_axil_arready.eq(0),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(writes & ~(wrote & self.s_axil_arvalid)):
                    m.d.sync += [
                        host.addr.eq(self.s_axil_awaddr >> 2),
                        host.write_data.eq(self.s_axil_wdata),
                        host.write_en.eq(whole),
                        self.s_axil_awready.eq(1),
                        self.s_axil_wready.eq(1),
                        wrote.eq(1),
                    ]
                    m.next = "WRITE"
                with m.Elif(self.s_axil_arvalid):
                    m.d.sync += [
                        host.addr.eq(self.s_axil_araddr >> 2),
                        self.s_axil_arready.eq(1),
                        wrote.eq(0),
                    ]
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.sync += [self.s_axil_bvalid.eq(1), self.s_axil_bresp.eq(Response.OKAY)]
                with m.If(~whole):
                    m.d.sync += self.s_axil_bresp.eq(Response.SLVERR)
                m.next = "WRITTEN"
            with m.State("WRITTEN"), m.If(self.s_axil_bready):
                m.d.sync += self.s_axil_bvalid.eq(0)
                m.next = "IDLE"
            with m.State("READ"):
                m.next = "COMING"
            with m.State("COMING"):
                m.d.sync += [self.s_axil_rvalid.eq(1), self.s_axil_rdata.eq(host.read_data)]
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.s_axil_rready):
                m.d.sync += self.s_axil_rvalid.eq(0)
                m.next = "IDLE"
