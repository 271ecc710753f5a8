"""The microcoded machine: one core with its memories, and the array."""

from amaranth.hdl import ClockDomain, ClockSignal, Mux, ResetSignal, Signal
from amaranth.lib.wiring import connect, flipped

from celosia.arch.config import Config
from celosia.arch.micro.isa import Signal as Event
from celosia.arch.micro.memory import memory_map
from celosia.arch.micro.microcode import assemble
from celosia.arch.registers import Cause
from celosia.hdl.component import Component, InDomain
from celosia.hdl.control.recovery import Recovery, Watchdog
from celosia.hdl.engines import machine_ports
from celosia.hdl.memory.byte_ram import ByteRam
from celosia.hdl.memory.guard import MemoryGuard
from celosia.hdl.micro.array import MicroArray
from celosia.hdl.micro.core import ARRAY_STROBES, MicroCore
from celosia.hdl.micro.host import MicroHost


class MicroMachine(Component):
    """An accelerator in which a core with microcode does the work of the engines.

    The ports are :class:`celosia.hdl.ports.MachinePorts`; ``events`` reports no events.
    """

    def __init__(self, config: Config):
        super().__init__(machine_ports(config))

    def circuit(self, m):
        config = self.config
        regions = memory_map(config)
        core = MicroCore(
            assemble(config).words(),
            memory=config.memory,
            accumulators=config.accumulators,
            scratchpad_bytes=config.scratchpad.bytes,
            program_depth=config.control.program_depth,
            data_depth=regions.end,
            requantizer=config.requantizer,
        )
        array = MicroArray(config.array, config.accumulators)
        m.submodules.core = InDomain(core, "core")
        m.submodules.array = InDomain(array, "core")
        m.submodules.guard = guard = MemoryGuard(config.memory, bank_bytes=config.bank_bytes)
        m.submodules.host = host = MicroHost(config.control.program_depth, regions)
        m.submodules.scratchpad = scratchpad = ByteRam(16, config.scratchpad.bytes // 2)
        m.submodules.data = data = ByteRam(32, regions.end)
        connect(m, flipped(self.host), host.host)
        connect(m, core.mem_read, guard.core_read)
        connect(m, core.mem_write, guard.core_write)
        connect(m, flipped(self.mem_read), guard.read)
        connect(m, flipped(self.mem_write), guard.write)
        for port, memory in ((core.sp, scratchpad), (core.data, data)):
            m.d.comb += [
                *(
                    getattr(memory, name).eq(getattr(port, name))
                    for name in ("en", "addr", "mask", "write_data")
                ),
                port.read_data.eq(memory.read_data),
            ]
        with m.If(host.write_en):
            m.d.comb += [
                data.en.eq(1),
                data.addr.eq(host.write_addr),
                data.mask.eq(0b1111),
                data.write_data.eq(host.write_data),
            ]

        # A run is over when the core waits again after the run has begun.
        begun, events = (
            Signal(),
            {each: core.signal & (core.signal_value == each) for each in Event},
        )
        m.d.sync += begun.eq(host.run & (begun | (core.waiting & ~core.hold)))
        m.d.comb += [
            core.hold.eq(host.write_en),
            core.go.eq(host.run & ~begun),
            core.pc.eq(host.pc),
            host.over.eq(begun & core.waiting),
            *(getattr(array, name).eq(getattr(core, name)) for name in ARRAY_STROBES),
            array.byte.eq(core.operand),
            array.word.eq(core.sp.read_data),
            array.row.eq(core.row),
            core.sum.eq(array.sum),
        ]
        # Registered, because the address comes late from a sum; the word read is executed no sooner
        # than the cycle after next.
        outside = Signal()
        reads = core.data.en & ~core.data.mask.any()
        m.d.sync += outside.eq(reads & (core.data.addr == config.control.program_depth))
        self._recover(m, host, guard, events[Event.FAIL], outside)
        if config.control.trace:
            self._trace(m, core, events, host.abort)

    def _recover(self, m, host, guard, failed, outside):
        """Stop runs that fail; the beginning of the microcode clears state left by an abort."""
        m.domains.core = core = ClockDomain("core", local=True)
        m.submodules.recovery = recovery = Recovery(0)
        m.submodules.watchdog = watchdog = Watchdog(2, self.config.control.watchdog)
        m.d.comb += [
            core.clk.eq(ClockSignal()),
            core.rst.eq(ResetSignal() | recovery.clear),
            watchdog.watched.eq(guard.waits),
            host.faults[Cause.INSTRUCTION].eq(failed),
            host.faults[Cause.PROGRAM].eq(outside),
            host.faults[Cause.MEMORY].eq(self.mem_error | self.mem_reset),
            host.faults[Cause.SILENCE].eq(watchdog.expired.any()),
            host.recovered.eq(recovery.idle),
            recovery.abort.eq(host.abort),
            recovery.closed.eq(guard.closed),
            recovery.owed.eq(guard.owed),
            guard.close.eq(recovery.close),
            guard.forget.eq(host.forget | self.mem_reset),
            self.mem_forget.eq(host.forget),
            self.irq.eq(host.irq),
        ]

    def _trace(self, m, core, events, abort):
        """Report the writes of a vector engine instruction."""
        vector = Signal()
        with m.If(events[Event.VECTOR] | events[Event.RETIRE]):
            m.d.sync += vector.eq(events[Event.VECTOR])
        with m.If(abort):
            m.d.sync += vector.eq(0)
        trace, sp = self.trace, core.sp
        single = sp.mask != 0b11
        m.d.comb += [
            trace.retire.eq(events[Event.RETIRE]),
            trace.o_valid.eq(vector & sp.en & sp.mask.any()),
            trace.o_write.addr.eq(sp.addr << 1 | (sp.mask == 0b10)),
            trace.o_write.count.eq(Mux(single, 1, 2)),
            trace.o_write.data[0].eq(Mux(sp.mask == 0b10, sp.write_data[8:], sp.write_data[:8])),
            trace.o_write.data[1].eq(sp.write_data[8:]),
        ]
