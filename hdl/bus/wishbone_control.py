"""The host port as a Wishbone slave."""

from pathlib import Path

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.tables import read_table
from celosia.hdl.bus.axi4_lite import ADDR_WIDTH
from celosia.hdl.component import Component
from celosia.hdl.ports import HostPort

PORT_MEANINGS = read_table(Path(__file__).with_name("signals.toml"))["wishbone-control"]
"""Dictionary from each Wishbone signal to its meaning."""


class WishboneControl(Component):
    """Turns the register bus ``host`` into a Wishbone B4 slave with classic cycles.

    Register n is the word at byte 4n. A write takes two cycles, a read three. ``wbs_ack_o``,
    ``wbs_err_o`` and ``wbs_dat_o`` are registers. A write of fewer than four bytes is answered by
    ``wbs_err_o``, and has no effect.
    """

    port_meanings = PORT_MEANINGS

    host: Out(HostPort())
    wbs_cyc_i: In(1)
    wbs_stb_i: In(1)
    wbs_we_i: In(1)
    wbs_adr_i: In(ADDR_WIDTH)
    wbs_dat_i: In(32)
    wbs_sel_i: In(4)
    wbs_dat_o: Out(32)
    wbs_ack_o: Out(1)
    wbs_err_o: Out(1)

    def circuit(self, m):
        host = self.host
        asked, whole = Signal(), Signal()
        m.d.comb += [
            asked.eq(self.wbs_cyc_i & self.wbs_stb_i),
            whole.eq(self.wbs_sel_i.all()),
            host.addr.eq(self.wbs_adr_i >> 2),
            host.write_data.eq(self.wbs_dat_i),
        ]
        m.d.sync += [self.wbs_ack_o.eq(0), self.wbs_err_o.eq(0)]
        with m.FSM():
            with m.State("IDLE"), m.If(asked):
                m.next = "COMING"
                with m.If(self.wbs_we_i):
                    m.d.comb += host.write_en.eq(whole)
                    m.d.sync += [self.wbs_ack_o.eq(whole), self.wbs_err_o.eq(~whole)]
                    m.next = "REST"
            with m.State("COMING"):
                m.d.sync += [self.wbs_dat_o.eq(host.read_data), self.wbs_ack_o.eq(asked)]
                m.next = "REST"
            with m.State("REST"):
                m.next = "IDLE"
