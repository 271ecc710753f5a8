"""Begin and end of runs, and the fault or abort that stops a run."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import CAUSE_WIDTH, CONTROL_ABORT, CONTROL_FORGET, CONTROL_START, Cause
from celosia.hdl.component import Component

_STOPS = (CONTROL_ABORT | CONTROL_FORGET).bit_length()


class Outcome(Component):
    """Begins the runs that the host requests, and reports how each run ends.

    - ``control``: the bits written to CONTROL if ``control_en`` is 1. START requests a run; ABORT
      or FORGET ends it.
    - ``outside``: if it is 1, no run starts; the cause is PROGRAM.
    - ``start``: 1 for one cycle, when ``recovered`` is 1.
    - ``working``: if it is 0, the run ends.
    - ``faults``: a bit at 1 ends the run; before the start, only SILENCE does.
    - ``cause``: reason of the end (:class:`celosia.arch.registers.Cause`).
    - ``abort``: 1 when the core must be reset.
    - ``busy``: 1 during a run, and then until ``recovered`` is 1.
    - ``interrupt``: a run with cause NONE sets bit 0, another run bit 1.
    - ``irq``: 1 if ``interrupt & enable`` is not 0.
    """

    recovered: Signal
    """1 if the reset of the core has finished, so that a run may begin."""
    take: Signal
    """A bit at 1 sets that bit of ``interrupt`` to 0."""
    enable: Signal
    """The register INTERRUPT_ENABLE."""
    forget: Signal
    """1 in the cycle of a write of FORGET."""

    def __init__(self) -> None:
        super().__init__(
            {
                "control_en": In(1),
                "control": In(_STOPS),
                "outside": In(1),
                "recovered": In(1),
                "working": In(1),
                "faults": In(len(Cause)),
                "start": Out(1),
                "abort": Out(1),
                "forget": Out(1),
                "busy": Out(1),
                "cause": Out(CAUSE_WIDTH),
                "take": In(2),
                "enable": In(2),
                "interrupt": Out(2),
                "irq": Out(1),
            }
        )

    def circuit(self, m):
        # After SILENCE the core's reset cannot finish, so that ``busy`` must not wait for it.
        running, wanted, given_up = Signal(), Signal(), Signal()
        stops, asked, go = Signal(), Signal(), Signal()
        faults = Signal.like(self.faults)
        active = running | wanted
        m.d.comb += [
            self.forget.eq(self.control_en & (self.control & CONTROL_FORGET).any()),
            stops.eq(self.control_en & (self.control & (CONTROL_ABORT | CONTROL_FORGET)).any()),
            asked.eq(self.control_en & (self.control & CONTROL_START).any() & (stops | ~active)),
            go.eq(((asked & ~self.outside) | wanted) & self.recovered & ~stops),
            faults.eq(Mux(running, self.faults, self.faults & (1 << Cause.SILENCE))),
            self.abort.eq(stops | (faults.any() & running)),
            self.busy.eq(active | ~(self.recovered | given_up)),
            self.irq.eq((self.interrupt & self.enable).any()),
        ]

        # Registered, because a start reaches all of the machine.
        m.d.sync += self.start.eq(go & ~self.outside)
        first = Signal(CAUSE_WIDTH)
        for cause in reversed(Cause):
            with m.If(faults[cause]):
                m.d.comb += first.eq(cause)
        with m.If(running & ~self.start & ~self.working):
            m.d.sync += running.eq(0)
        with m.If(self.recovered):
            m.d.sync += given_up.eq(0)
        with m.If(self.cause == Cause.NONE):
            with m.If(faults.any()):
                m.d.sync += self.cause.eq(first)
            with m.Elif(stops & active):
                m.d.sync += self.cause.eq(Cause.ABORTED)
        with m.If(self.faults[Cause.SILENCE]):
            m.d.sync += [given_up.eq(1), wanted.eq(0)]
        with m.If(self.abort):
            m.d.sync += [running.eq(0), wanted.eq(0)]
        with m.If(asked):
            m.d.sync += [wanted.eq(1), given_up.eq(0), self.cause.eq(Cause.NONE)]
        with m.If(go):
            m.d.sync += [wanted.eq(0), running.eq(~self.outside)]
            with m.If(self.outside):
                m.d.sync += self.cause.eq(Cause.PROGRAM)

        before, ran = Signal(), Signal()
        ends = before & ~self.busy
        wrong = self.cause != Cause.NONE
        m.d.sync += [
            before.eq(self.busy),
            ran.eq(asked | (ran & ~ends)),
            self.interrupt.eq(
                (self.interrupt & ~self.take) | Mux(ends & ran, Cat(~wrong, wrong), 0)
            ),
        ]
