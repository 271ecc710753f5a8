"""The host's registers of the microcoded machine."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import REGISTERS
from arch.micro.memory import memory_map
from arch.registers import COUNTER_WIDTH, IDENTITY, REGISTER_MAP
from hdl.component import Component
from hdl.ports import HostPort


class MicroHost(Component):
    """The registers of ``arch.registers`` but for all counters other than CYCLES, on ``host``.

    ``run`` is 1 from when the host starts a run until ``over``. Program words and registers are
    written to the data memory, where their places are (``arch.micro.memory``), in cycles with
    ``write_en``, each a cycle after the host's. STATUS remembers ``failed`` and ``mem_error``
    until the next start.
    """

    def __init__(self, config: Config):
        self.config = config
        self._map = memory_map(config)
        super().__init__(
            {
                "host": In(HostPort()),
                "run": Out(1),
                "over": In(1),
                "failed": In(1),
                "mem_error": In(1),
                "pc": Out((config.program_depth - 1).bit_length()),
                "write_en": Out(1),
                "write_addr": Out((self._map.end - 1).bit_length()),
                "write_data": Out(32),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        host = self.host

        def written(name):
            return host.write_en & (host.addr == REGISTER_MAP[name].addr)

        starts = Signal()
        error = Signal()
        mem_error = Signal()
        m.d.comb += starts.eq(written("CONTROL") & host.write_data[0] & ~self.run)
        m.d.sync += [
            self.run.eq(starts | (self.run & ~self.over)),
            error.eq(~starts & (error | self.failed)),
            mem_error.eq(~starts & (mem_error | self.mem_error)),
        ]

        program_addr = Signal.like(self.pc)
        puts_word = written("PROGRAM_DATA")
        first = REGISTER_MAP["R1"].addr - 1
        puts_register = host.write_en & (host.addr >> 4 == first >> 4)
        with m.If(written("PC")):
            m.d.sync += self.pc.eq(host.write_data)
        with m.If(written("PROGRAM_ADDR")):
            m.d.sync += program_addr.eq(host.write_data)
        with m.Elif(puts_word):
            m.d.sync += program_addr.eq(program_addr + 1)
        register = Cat(host.addr[:4], Const(self._map.registers // REGISTERS, len(self.write_addr)))
        m.d.sync += [
            self.write_en.eq(puts_word | puts_register),
            self.write_addr.eq(Mux(puts_word, program_addr, register)),
            self.write_data.eq(host.write_data),
        ]

        cycles = Signal(COUNTER_WIDTH)
        with m.If(starts):
            m.d.sync += cycles.eq(0)
        with m.Elif(self.run):
            m.d.sync += cycles.eq(cycles + 1)
        m.d.sync += host.read_data.eq(0)
        with m.Switch(host.addr):
            for name, value in (
                ("ID", IDENTITY),
                ("STATUS", Cat(self.run, error, Const(0, 1), mem_error)),
                ("PC", self.pc),
                ("CYCLES_LOW", cycles[:32]),
                ("CYCLES_HIGH", cycles[32:]),
            ):
                with m.Case(REGISTER_MAP[name].addr):
                    m.d.sync += host.read_data.eq(value)
        return m
