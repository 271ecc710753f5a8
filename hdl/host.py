"""The host's registers: control, status, program, counters."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import IMMEDIATE_WIDTH, REGISTERS, WORD_WIDTH
from arch.registers import COUNTER_WIDTH, COUNTERS, IDENTITY, REGISTER_MAP
from hdl.ports import HostPort


class HostRegisters(wiring.Component):
    """The registers of ``arch.registers``, on the bus ``host``.

    ``start`` is 1 for one cycle when a run is to begin at ``pc``. A counter grows by ``count_NAME``
    in each cycle and is cleared by ``start``; ``widths`` gives the widths of those that may grow
    by more than 1 (bits).
    """

    def __init__(self, config: Config, widths: Mapping[str, int]):
        self.config = config
        addr_width = (config.program_depth - 1).bit_length()
        super().__init__(
            {
                "host": In(HostPort()),
                "busy": In(1),
                "error": In(1),
                "overflow": In(1),
                "start": Out(1),
                "pc": Out(addr_width),
                "program_en": Out(1),
                "program_addr": Out(addr_width),
                "program_data": Out(WORD_WIDTH),
                "register_en": Out(1),
                "register_index": Out(range(REGISTERS)),
                "register_data": Out(IMMEDIATE_WIDTH),
                **{f"count_{name.lower()}": In(widths.get(name, 1)) for name in COUNTERS},
            }
        )

    def elaborate(self, _platform):
        m = Module()
        host = self.host

        def written(name):
            return host.write_en & (host.addr == REGISTER_MAP[name].addr)

        first = REGISTER_MAP["R1"].addr - 1
        m.d.comb += [
            self.start.eq(written("CONTROL") & host.write_data[0] & ~self.busy),
            self.program_en.eq(written("PROGRAM_DATA")),
            self.program_data.eq(host.write_data),
            self.register_en.eq(host.write_en & (host.addr >> 4 == first >> 4)),
            self.register_index.eq(host.addr),
            self.register_data.eq(host.write_data),
        ]
        with m.If(written("PC")):
            m.d.sync += self.pc.eq(host.write_data)
        with m.If(written("PROGRAM_ADDR")):
            m.d.sync += self.program_addr.eq(host.write_data)
        with m.Elif(self.program_en):
            m.d.sync += self.program_addr.eq(self.program_addr + 1)

        m.d.sync += host.read_data.eq(0)
        with m.Switch(host.addr):
            for name, value in (
                ("ID", IDENTITY),
                ("STATUS", Cat(self.busy, self.error, self.overflow)),
                ("PC", self.pc),
            ):
                with m.Case(REGISTER_MAP[name].addr):
                    m.d.sync += host.read_data.eq(value)
            for name in COUNTERS:
                counter = Signal(COUNTER_WIDTH, name=name.lower())
                added = getattr(self, f"count_{name.lower()}")
                m.d.sync += counter.eq(Mux(self.start, 0, counter + added))
                with m.Case(REGISTER_MAP[f"{name}_LOW"].addr):
                    m.d.sync += host.read_data.eq(counter[:32])
                with m.Case(REGISTER_MAP[f"{name}_HIGH"].addr):
                    m.d.sync += host.read_data.eq(counter[32:])
        return m
