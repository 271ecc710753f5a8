"""The registers of the host port of the microcoded machine."""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import REGISTERS
from celosia.arch.micro.memory import Map
from celosia.arch.registers import COUNTER_WIDTH, REGISTER_MAP, Cause
from celosia.hdl.control.outcome import Outcome
from celosia.hdl.control.run_registers import RunRegisters
from celosia.hdl.ports import HostPort


class MicroHost(RunRegisters):
    """The host's registers of the microcoded machine; CYCLES is the only counter.

    ``run`` is 1 from the beginning of a run until ``over`` or ``abort`` is 1. Other ports
    are those of :class:`RunRegisters`.
    """

    write_en: Signal
    """1 to store ``write_data`` at ``write_addr`` of the data memory."""
    write_addr: Signal
    """The word of the data memory to write."""
    write_data: Signal
    """The word to write."""

    def __init__(self, program_depth: int, memory: Map):
        self._map = memory
        super().__init__(
            {
                "host": In(HostPort()),
                "run": Out(1),
                "over": In(1),
                "faults": In(len(Cause)),
                "recovered": In(1),
                "abort": Out(1),
                "forget": Out(1),
                "irq": Out(1),
                "pc": Out((program_depth - 1).bit_length()),
                # A program word or register that the host wrote in the previous cycle.
                "write_en": Out(1),
                "write_addr": Out((self._map.end - 1).bit_length()),
                "write_data": Out(32),
            }
        )

    def circuit(self, m):
        host = self.host
        outcome = Outcome()
        m.d.comb += outcome.working.eq(self.run)
        m.d.sync += self.run.eq((outcome.start | (self.run & ~self.over)) & ~self.abort)
        values = self.runs(m, outcome)

        program_addr = Signal.like(self.pc)
        puts_word = self.written("PROGRAM_DATA")
        first = REGISTER_MAP["R1"].addr - 1
        puts_register = host.write_en & (host.addr >> 4 == first >> 4)
        with m.If(self.written("PROGRAM_ADDR")):
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
        with m.If(outcome.start):
            m.d.sync += cycles.eq(0)
        with m.Elif(self.run):
            m.d.sync += cycles.eq(cycles + 1)
        m.d.sync += host.read_data.eq(0)
        values |= {"CYCLES_LOW": cycles[:32], "CYCLES_HIGH": cycles[32:]}
        with m.Switch(host.addr):
            for name, value in values.items():
                with m.Case(REGISTER_MAP[name].addr):
                    m.d.sync += host.read_data.eq(value)
