"""The microcoded machine: one core with its memories, and the array."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import connect, flipped

from arch.config import Config
from arch.micro.isa import Signal as Told
from arch.micro.memory import memory_map
from arch.micro.microcode import assemble
from hdl.component import Component
from hdl.memory.byte_ram import ByteRam
from hdl.micro.array import MicroArray
from hdl.micro.core import MicroCore
from hdl.micro.host import MicroHost
from hdl.ports import MachinePorts


class MicroMachine(Component):
    """An accelerator of which a core and its microcode do the work.

    Its ports are ``hdl.ports.MachinePorts``; nothing is reported on ``events``.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(MachinePorts(config))

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        depth = memory_map(config).end
        words = assemble(config).words()
        m.submodules.core = core = MicroCore(config, words, depth)
        m.submodules.array = array = MicroArray(config)
        m.submodules.host = host = MicroHost(config)
        m.submodules.scratchpad = scratchpad = ByteRam(16, config.scratchpad_bytes // 2)
        m.submodules.data = data = ByteRam(32, depth)
        connect(m, flipped(self.host), host.host)
        connect(m, core.mem_read, flipped(self.mem_read))
        connect(m, core.mem_write, flipped(self.mem_write))
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

        # A run is over when the core waits again after it has begun.
        begun, told = Signal(), {each: core.signal & (core.signal_value == each) for each in Told}
        m.d.sync += begun.eq(host.run & (begun | (core.waiting & ~core.hold)))
        m.d.comb += [
            core.hold.eq(host.write_en),
            core.go.eq(host.run & ~begun),
            core.pc.eq(host.pc),
            host.over.eq(begun & core.waiting),
            host.failed.eq(told[Told.FAIL]),
            host.mem_error.eq(self.mem_error),
            array.weight.eq(core.weight),
            array.blank.eq(core.blank),
            array.enter.eq(core.enter),
            array.byte.eq(core.operand),
            array.step.eq(core.step),
            core.sum.eq(array.sum),
        ]
        if config.trace:
            self._trace(m, core, told)
        return m

    def _trace(self, m, core, told):
        """Report what an instruction of the vector engine writes."""
        vector = Signal()
        with m.If(told[Told.VECTOR] | told[Told.RETIRE]):
            m.d.sync += vector.eq(told[Told.VECTOR])
        trace, sp = self.trace, core.sp
        single = sp.mask != 0b11
        m.d.comb += [
            trace.retire.eq(told[Told.RETIRE]),
            trace.o_valid.eq(vector & sp.en & sp.mask.any()),
            trace.o_write.addr.eq(sp.addr << 1 | (sp.mask == 0b10)),
            trace.o_write.count.eq(Mux(single, 1, 2)),
            trace.o_write.data[0].eq(Mux(sp.mask == 0b10, sp.write_data[8:], sp.write_data[:8])),
            trace.o_write.data[1].eq(sp.write_data[8:]),
        ]
