"""The accelerator: all engines and memories, connected."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Signal
from amaranth.lib.wiring import connect, flipped

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import Engine
from celosia.arch.registers import ARRAY_CAUSES, Cause
from celosia.hdl.component import Component, InDomain
from celosia.hdl.control.account import ArrayAccount
from celosia.hdl.control.dispatch import Dispatch
from celosia.hdl.control.recovery import Recovery, Watchdog
from celosia.hdl.control.sequencer import Sequencer
from celosia.hdl.control.span import Span
from celosia.hdl.control.throttle import Throttle
from celosia.hdl.copies import differences_of, guarded
from celosia.hdl.engines import (
    accumulator_memory,
    host_registers,
    load_engine,
    machine_ports,
    matrix_engine,
    scratchpad,
    store_engine,
    vector_engine,
)
from celosia.hdl.memory.guard import MemoryGuard
from celosia.hdl.memory.protected import ERRORS, errors_of
from celosia.hdl.ports import WORD
from celosia.hdl.stream.fields import carry
from celosia.hdl.stream.pipeline import delay, domain_of
from celosia.hdl.stream.slice import RegisterSlice


class Accelerator(Component):
    """A Transformer accelerator whose engines work in parallel.

    Its ports are those of :class:`celosia.hdl.ports.MachinePorts`. Raises :class:`InputError` if
    the configuration is that of a microcoded machine, which has no engines. ``celosia.hdl.machine``
    makes the machine of any configuration.
    """

    def __init__(self, config: Config):
        if config.micro is not None:
            raise InputError(f"An accelerator has engines, which {config.name}, microcoded, lacks")
        super().__init__(machine_ports(config))

    def circuit(self, m):
        config = self.config
        cores: list = []
        sequencer = self._core(
            m, cores, "sequencer", Sequencer(config.control, config.instructions)
        )
        dispatch = self._core(m, cores, "dispatch", Dispatch(config.control))
        load = self._core(m, cores, "load", load_engine(config))
        store = self._core(m, cores, "store", store_engine(config))
        matrix = self._core(m, cores, "matrix", matrix_engine(config))
        vector = self._core(m, cores, "vector", vector_engine(config))
        accumulators = self._core(m, cores, "accumulators", accumulator_memory(config))
        writers = ("o", "s", "load") if config.vector.norm else ("o", "load")
        memory = self._core(m, cores, "scratchpad", scratchpad(config, writers=writers))
        m.submodules.guard = guard = MemoryGuard(config.memory, bank_bytes=config.bank_bytes)
        m.submodules.recovery = recovery = Recovery(config.accumulators.depth)

        # Memories.
        connect(m, load.memory, guard.core_read)
        connect(m, store.memory, guard.core_write)
        connect(m, flipped(self.mem_read), guard.read)
        connect(m, flipped(self.mem_write), guard.write)
        for port, name in (
            (matrix.a, "a"),
            (matrix.b, "b"),
            (vector.v, "v"),
            (vector.r, "r"),
            (store.read, "store"),
        ):
            connect(m, port, getattr(memory, f"read_{name}"))
        connect(m, vector.o, memory.write_o)
        connect(m, load.write, memory.write_load)
        if config.vector.norm:
            connect(m, vector.s, memory.write_s)
        connect(m, matrix.accumulate, accumulators.accumulate)
        connect(m, vector.drain, accumulators.drain)
        if config.control.trace:
            connect(m, vector.trace, flipped(self.trace))

        # Commands and tokens.
        engines = {
            Engine.LOAD: load,
            Engine.MATRIX: matrix,
            Engine.VECTOR: vector,
            Engine.STORE: store,
        }
        words = self._register(m, cores, "words", sequencer.o)
        connect(m, words, dispatch.i)
        m.d.comb += sequencer.idle.eq(dispatch.idle)
        for engine, unit in engines.items():
            name = engine.name.lower()
            connect(m, getattr(dispatch, f"o_{name}"), unit.i)
            m.d.comb += [
                getattr(dispatch, f"done_{name}").eq(unit.status.done),
                getattr(dispatch, f"push_{name}").eq(unit.status.push),
            ]

        if config.throttle:
            m.submodules.throttle = throttle = Throttle(config.throttle.cycles)
            connect(m, flipped(self.thermal), throttle.thermal)
            m.d.comb += [
                memory.hold.eq(throttle.hold),
                accumulators.hold.eq(throttle.hold),
            ]
        account = self._account(m, sequencer, dispatch, matrix)
        if config.control.trace:
            self._events(m, dispatch, engines, account)
        memory_errors = self._errors(m, cores)
        registers = self._host(m, sequencer, dispatch, matrix, vector, engines, account)
        m.d.comb += registers.faults[Cause.CORRUPTED].eq(memory_errors[1])
        if config.protects:
            m.d.comb += registers.count_corrected.eq(memory_errors[0])
        self._recover(m, recovery, guard, registers, sequencer, dispatch, engines)
        m.d.comb += [
            accumulators.scrub.eq(
                recovery.scrub & (recovery.scrub_addr < config.accumulators.depth)
            ),
            accumulators.scrub_addr.eq(recovery.scrub_addr),
        ]

    def _core(self, m, cores, name, component):
        """Place a component that an abort resets, with protected control registers."""
        component = guarded(component, self.config.protected("control"))
        m.submodules[name] = InDomain(component, "core")
        cores.append(component)
        return component

    def _errors(self, m, units):
        """Return the errors that the units' memories reported, one cycle later."""
        memory_errors = Signal(ERRORS)
        if self.config.protects:
            wrong = Cat(Const(0, 1), Cat(differences_of(units)).any())
            m.d.sync += memory_errors.eq(reduce(or_, errors_of(units), wrong))
        return memory_errors

    def _register(self, m, cores, name, words):
        """Return a stream of words, through a register slice if ``registered``."""
        for _ in range(self.config.stages):
            stage = self._core(m, cores, name, RegisterSlice(WORD))
            connect(m, words, stage.i)
            words = stage.o
        return words

    def _account(self, m, sequencer, dispatch, matrix):
        """Return the array's activity in this cycle, by the names of ``ARRAY_CAUSES``."""
        m.submodules.account = account = ArrayAccount()
        m.d.comb += [
            account.running.eq(sequencer.busy),
            account.sends.eq(matrix.sends),
            account.refused.eq(matrix.refused),
            account.filling.eq(matrix.filling),
            account.lacking.eq(dispatch.lacking_matrix),
            account.busy.eq(matrix.status.busy),
            account.blocked.eq(dispatch.i.valid & ~dispatch.i.ready),
            account.halted.eq(sequencer.halted),
        ]
        return {name: getattr(account, name.lower()) for name in ARRAY_CAUSES}

    def _events(self, m, dispatch, engines, account):
        """Report commands and the array's activity."""
        events = self.events
        m.d.comb += [
            events.word_valid.eq(dispatch.i.valid & dispatch.i.ready),
            events.word.eq(dispatch.i.p),
            events.array.eq(Cat(account.values())),
        ]
        for engine, unit in engines.items():
            event = events.engines[engine]
            m.d.comb += [
                event.offered.eq(unit.i.valid),
                event.taken.eq(unit.i.valid & unit.i.ready),
                event.done.eq(unit.status.done),
                event.lacking.eq(getattr(dispatch, f"lacking_{engine.name.lower()}")),
            ]

    def _accesses(self, vector):
        """Return the number of lines that the vector engine reads and writes in a cycle."""
        written = [vector.o, vector.s] if self.config.vector.norm else [vector.o]
        return {
            name: sum(port.request.valid & port.request.ready for port in ports)
            for name, ports in (("VECTOR_READ", [vector.v, vector.r]), ("VECTOR_WRITTEN", written))
        }

    def _host(self, m, sequencer, dispatch, matrix, vector, engines, account):
        """Connect the host registers: they start runs and count."""
        counted = {"MACS": matrix.macs}
        if self.config.array.operand_gating:
            counted["GATED"] = matrix.gated
        if self.config.sparse_lanes:
            counted["SKIPPED"] = matrix.skipped
        m.submodules.span = span = Span()
        m.d.comb += [span.active.eq(matrix.working), span.clear.eq(sequencer.start)]
        counted["SPAN_MATRIX"] = span.grows
        counted |= self._accesses(vector)
        widths = {name: len(value) for name, value in counted.items()}
        m.submodules.registers = registers = host_registers(self.config, widths)
        connect(m, flipped(self.host), registers.host)
        counted |= {
            "CYCLES": sequencer.busy,
            "LOADED": self.mem_read.data.valid & self.mem_read.data.ready,
            "STORED": self.mem_write.data.valid & self.mem_write.data.ready,
        }
        # Registered, because engines are far from each other.
        running = delay(m, sequencer.busy, 1, reset=True)
        for engine, unit in engines.items():
            waiting = getattr(dispatch, f"waiting_{engine.name.lower()}")
            states = (unit.status.busy, unit.status.stall, waiting)
            busy, stall, waiting = (delay(m, state, 1) for state in states)
            counted[f"BUSY_{engine.name}"] = running & busy
            counted[f"STALL_{engine.name}"] = running & busy & stall
            counted[f"WAIT_{engine.name}"] = running & ~busy & waiting
            counted[f"IDLE_{engine.name}"] = running & ~busy & ~waiting
        counted |= {f"ARRAY_{name}": cause for name, cause in account.items()}
        m.d.comb += [
            *(
                getattr(registers, f"count_{name.lower()}").eq(grows)
                for name, grows in counted.items()
                if name in registers.widths
            ),
            *([registers.largest.eq(vector.largest)] if self.config.vector.argmax else []),
            registers.busy.eq(sequencer.busy),
            dispatch.clear.eq(registers.start),
            *carry(sequencer, registers, "start", "pc"),
            *carry(sequencer, registers, "program_en", "program_addr", "program_data"),
            *carry(sequencer, registers, "register_en", "register_index", "register_data"),
        ]
        return registers

    def _recover(self, m, recovery, guard, registers, sequencer, dispatch, engines):
        """Stop runs that fail, and reset all that an abort resets."""
        m.domains.core = core = ClockDomain("core", local=True)
        m.submodules.watchdog = watchdog = Watchdog(3, self.config.control.watchdog)
        busy = Cat(unit.status.busy for unit in engines.values()).any()
        moves = sequencer.advance | busy | (dispatch.i.valid & dispatch.i.ready)
        faults = {
            Cause.TOKENS: dispatch.overflow,
            Cause.DEADLOCK: watchdog.expired[2],
            Cause.MEMORY: self.mem_error | self.mem_reset,
            Cause.SILENCE: watchdog.expired[:2].any(),
        }
        for cause in (Cause.INSTRUCTION, Cause.LOOP, Cause.REGISTER, Cause.PROGRAM):
            faults[cause] = sequencer.error & (sequencer.cause == cause)
        # Registered, because progress is collected from all over the machine.
        m.d.sync += watchdog.watched.eq(Cat(guard.waits, sequencer.busy & ~moves))
        # So are faults where units are far from each other.
        domain = domain_of(m, self.config.stages)
        domain += [
            registers.faults[cause].eq(errors_of_cause) for cause, errors_of_cause in faults.items()
        ]
        m.d.comb += [
            core.clk.eq(ClockSignal()),
            core.rst.eq(recovery.clear),
            registers.recovered.eq(recovery.idle),
            recovery.abort.eq(registers.abort),
            recovery.closed.eq(guard.closed),
            recovery.owed.eq(guard.owed),
            guard.close.eq(recovery.close),
            guard.forget.eq(registers.forget | self.mem_reset),
            sequencer.scrub.eq(recovery.scrub),
            self.mem_forget.eq(registers.forget),
            self.irq.eq(registers.irq),
        ]
