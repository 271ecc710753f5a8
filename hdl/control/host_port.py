"""The registers of the host port: control, status, program and counters."""

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.arch.isa import IMMEDIATE_WIDTH, REGISTERS, WORD_WIDTH
from celosia.arch.registers import COUNTERS, REGISTER_MAP, Cause
from celosia.hdl.control.counters import Counters
from celosia.hdl.control.outcome import Outcome
from celosia.hdl.control.run_registers import RunRegisters
from celosia.hdl.functions.argmax import largest_layout
from celosia.hdl.ports import HostPort

_UNITS = {
    "GATED": ("operand_gating",),
    "SKIPPED": ("sparse_lanes",),
    "CORRECTED": ("protects",),
}

_PLACES = 1 << (len(COUNTERS) - 1).bit_length()
"""Number of positions of counters; the address bits of a register above bit 0 select a position."""


def counter_names(config: Config) -> list[str]:
    """Return a list of the names of the counters that a configuration's machine has.

    The host reads 0 from the registers of all other counters.
    """
    absent = {
        name for name, units in _UNITS.items() if not any(config.read(unit) for unit in units)
    }
    kept = COUNTERS if config.control.counters else ("CYCLES", "CORRECTED")
    return [name for name in kept if name not in absent]


class HostRegisters(RunRegisters):
    """The registers of a machine (``celosia.arch.registers``), on the register bus ``host``.

    ``start`` is 1 for one cycle when a run begins at program address ``pc``; this sets all counters
    to 0. ``count_NAME`` is added to counter NAME in each cycle. ``widths`` maps NAME to the width
    of ``count_NAME`` (bits).
    """

    largest: data.View
    """The largest element and its column, for ARGMAX_VALUE and ARGMAX."""
    busy: Signal
    """1 during a run, and until the core has recovered."""
    program_en: Signal
    """1 to write ``program_data`` to word ``program_addr`` of the program memory."""
    program_addr: Signal
    """The word of the program memory to write."""
    program_data: Signal
    """The word to write."""
    register_en: Signal
    """1 to write ``register_data`` to register ``register_index`` of the sequencer."""
    register_index: Signal
    """The register to write, 1 to 15 for R1 to R15."""
    register_data: Signal
    """The value to write."""

    def __init__(self, program_depth: int, widths: Mapping[str, int], *, argmax: bool = False):
        self.widths = dict(widths)
        addr_width = (program_depth - 1).bit_length()
        super().__init__(
            {
                "host": In(HostPort()),
                "busy": In(1),
                "faults": In(len(Cause)),
                "recovered": In(1),
                "abort": Out(1),
                "forget": Out(1),
                "irq": Out(1),
                # The largest element and its column, for ARGMAX_VALUE and ARGMAX.
                **({"largest": In(largest_layout())} if argmax else {}),
                "start": Out(1),
                "pc": Out(addr_width),
                # Writes of the host to the program memory and the sequencer's registers.
                "program_en": Out(1),
                "program_addr": Out(addr_width),
                "program_data": Out(WORD_WIDTH),
                "register_en": Out(1),
                "register_index": Out(range(REGISTERS)),
                "register_data": Out(IMMEDIATE_WIDTH),
                **{f"count_{name.lower()}": In(width) for name, width in self.widths.items()},
            }
        )

    def circuit(self, m):
        host = self.host
        values = self.runs(m, outcome := Outcome())
        m.d.comb += self.start.eq(outcome.start)
        first = REGISTER_MAP["R1"].addr - 1
        m.d.comb += [
            self.program_en.eq(self.written("PROGRAM_DATA")),
            self.program_data.eq(host.write_data),
            self.register_en.eq(host.write_en & (host.addr >> 4 == first >> 4)),
            self.register_index.eq(host.addr),
            self.register_data.eq(host.write_data),
        ]
        with m.If(self.written("PROGRAM_ADDR")):
            m.d.sync += self.program_addr.eq(host.write_data)
        with m.Elif(self.program_en):
            m.d.sync += self.program_addr.eq(self.program_addr + 1)

        # A counter comes from memory in the next cycle; all other values are registered until then.
        shown = Signal.like(host.read_data)
        if self.argmax:
            values |= {"ARGMAX": self.largest.column, "ARGMAX_VALUE": self.largest.value}
        with m.Switch(host.addr):
            for name, value in values.items():
                with m.Case(REGISTER_MAP[name].addr):
                    m.d.sync += shown.eq(value)
            with m.Default():
                m.d.sync += shown.eq(0)
        self._count(m, outcome.working, shown)

    def _count(self, m: Module, working: Signal, shown: Signal) -> None:
        """Count, and return one half of a counter when the host reads it."""
        host = self.host
        m.submodules.counters = counters = Counters(
            {name.lower(): width for name, width in self.widths.items()},
            [REGISTER_MAP[f"{name}_LOW"].addr // 2 % _PLACES for name in self.widths],
        )
        for name in self.widths:
            port = f"count_{name.lower()}"
            m.d.comb += getattr(counters, port).eq(getattr(self, port))
        asked = Signal()
        high = Signal()
        m.d.sync += [asked.eq(0), high.eq(host.addr[0])]
        for name in self.widths:
            with m.If(host.addr >> 1 == REGISTER_MAP[f"{name}_LOW"].addr >> 1):
                m.d.sync += asked.eq(1)
        m.d.comb += [
            # No gate precedes a memory that is read within the cycle.
            counters.index.eq(host.addr >> 1),
            counters.clear.eq(self.start),
            # Counted units may report a cycle one cycle later.
            counters.hold.eq(self.busy),
            working.eq(self.busy | ~counters.settled),
            host.read_data.eq(
                Mux(asked, Mux(high, counters.value[32:], counters.value[:32]), shown)
            ),
        ]
