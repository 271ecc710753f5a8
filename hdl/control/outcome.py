"""Begin and end of runs, and the fault or abort that stops a run."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import CAUSE_WIDTH, CONTROL_ABORT, CONTROL_FORGET, CONTROL_START, Cause
from celosia.hdl.component import Component

_STOPS = (CONTROL_ABORT | CONTROL_FORGET).bit_length()


class Outcome(Component):
    """Begins and ends runs; implements the bits of the registers CONTROL, STATUS and INTERRUPT.

    If ``control_en`` is 1, the host writes ``control`` to the register CONTROL. The write requests
    a run if bit START of ``control`` is 1. The run begins once the input ``recovered`` reports that
    recovery (the reset of the core after a stopped run) has finished; ``start`` is then 1 for one
    cycle. The run ends when the input ``working`` is 0, which reports that the core has no work
    left and the counters are complete.

    ``faults`` has a bit for each :class:`celosia.arch.registers.Cause`. If a bit is 1, or the host
    aborts the run, the run stops and ``abort`` is 1. ``outside`` is 1 while the program counter is
    not in the program memory: a requested run is then cancelled with the fault PROGRAM, and
    ``start`` remains 0.

    ``busy`` is 1 from the request of a run until the run ends or is cancelled, and during recovery.
    If external memory does not answer, recovery may never finish. The fault SILENCE then cancels a
    run that waits for recovery, and sets ``busy`` to 0. So ``busy`` falls after every requested
    run.

    Bit 0 of ``interrupt`` records that a run has ended normally, bit 1 that a fault or an abort has
    stopped or cancelled a run. A bit remains 1 until the host clears it by the same bit of
    ``take``. ``enable`` is the register INTERRUPT_ENABLE. ``irq`` is 1 if a bit of ``interrupt``
    and the same bit of ``enable`` are 1.
    """

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
