"""The registers of a host port that begin, stop and report runs."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from celosia.arch.registers import CAUSE_SHIFT, IDENTITY, REGISTER_MAP
from celosia.hdl.component import Component
from celosia.hdl.control.outcome import Outcome


class RunRegisters(Component):
    """Base class of the registers by which the host begins, stops and observes runs."""

    program_depth: int
    """Size of the program memory (words); a run can begin only at a smaller address."""
    host: Any
    """The register bus."""
    pc: Any
    """The program address at which a run begins: the last value written to the register PC."""
    faults: Any
    """A bit for each cause that stops a run."""
    recovered: Any
    """1 if the reset of the core after a stopped run has finished."""
    abort: Any
    """1 in a cycle in which a fault or the host stops the run."""
    forget: Any
    """1 in a cycle in which the host writes the bit FORGET to the register CONTROL."""
    irq: Any
    """The interrupt request to the host."""

    def written(self, name: str) -> Value:
        """Return a bit that is 1 if the host writes the register ``name`` in this cycle."""
        return self.host.write_en & (self.host.addr == REGISTER_MAP[name].addr)

    def runs(self, m: Module, outcome: Outcome) -> dict[str, Value | int]:
        """Instantiate ``outcome``, connect it to the host port, and return the values of registers.

        ``outcome`` is the component that begins and ends runs. The result is a dictionary from name
        to value, with the registers that the host reads to observe runs, such as STATUS.
        """
        host = self.host
        m.submodules.outcome = outcome
        outside, enable = Signal(), Signal.like(outcome.enable)
        m.d.comb += [
            outcome.control_en.eq(self.written("CONTROL")),
            outcome.control.eq(host.write_data),
            outcome.outside.eq(outside),
            outcome.recovered.eq(self.recovered),
            outcome.faults.eq(self.faults),
            outcome.take.eq(Mux(self.written("INTERRUPT"), host.write_data, 0)),
            outcome.enable.eq(enable),
            self.abort.eq(outcome.abort),
            self.forget.eq(outcome.forget),
            self.irq.eq(outcome.irq),
        ]
        with m.If(self.written("INTERRUPT_ENABLE")):
            m.d.sync += enable.eq(host.write_data)
        with m.If(self.written("PC")):
            m.d.sync += [
                self.pc.eq(host.write_data),
                outside.eq(host.write_data >= self.program_depth),
            ]
        status = Cat(outcome.busy, outcome.cause.any(), ~self.recovered)
        return {
            "ID": IDENTITY,
            "STATUS": status | outcome.cause << CAUSE_SHIFT,
            "PC": self.pc,
            "INTERRUPT": outcome.interrupt,
            "INTERRUPT_ENABLE": enable,
        }
