"""Begin and end of runs, and the fault or abort that stops a run."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import CAUSE_WIDTH, CONTROL_ABORT, CONTROL_FORGET, CONTROL_START, Cause
from celosia.hdl.component import Component

_STOPS = (CONTROL_ABORT | CONTROL_FORGET).bit_length()


class Outcome(Component):
    """Begins and ends the runs of programs that the host requests.

    In a cycle with ``control_en`` at 1, the host writes ``control`` to the register CONTROL. Bit
    START of this register requests a run. A run has two states:

    - Requested: the run waits until ``recovered`` is 1. ``recovered`` is 0 during recovery, which
      is the reset of the core after an aborted run.
    - In progress: ``start`` is 1 in the first cycle. The run ends normally when ``working`` is 0 in
      a later cycle, that is, when no work is left and the counters are complete.

    Four events end a run early. ``cause`` then has the reason
    (:class:`celosia.arch.registers.Cause`); after a normal end, ``cause`` is NONE.

    - Fault: during the run, a bit of ``faults`` is 1. ``abort`` is then 1, and the core's
      recovery begins. ``cause`` is the number of the lowest bit of ``faults`` that is 1.
    - Abort: the host writes bit ABORT or FORGET of CONTROL. ``abort`` is 1, and the core's recovery
      begins. ``cause`` is ABORTED.
    - Wrong address: ``outside`` is 1 when the requested run would begin. ``outside`` reports that
      the program counter is not in the program memory. ``cause`` is PROGRAM.
    - Silence: external memory does not answer during recovery, so that recovery cannot finish. Bit
      SILENCE of ``faults`` is 1 while the run is requested. ``cause`` is SILENCE.

    If a run is requested or in progress, START is ignored. There is one exception: a write of START
    with ABORT or FORGET aborts the run and requests a new one.

    ``busy`` is 1 while a run is requested or in progress, and during recovery. If external
    memory does not answer during recovery (bit SILENCE of ``faults``), ``busy`` becomes 0 although
    recovery has not finished. ``forget`` is 1 in a cycle in which the host writes bit FORGET
    (forget outstanding memory accesses).

    When ``busy`` falls after a run, one bit of ``interrupt`` becomes 1: bit 0 after a normal end,
    bit 1 after an early end. A bit remains 1 until the host clears it by the same bit of ``take``.
    ``enable`` is the register INTERRUPT_ENABLE. ``irq`` is 1 if a bit of ``interrupt`` and the same
    bit of ``enable`` are 1.
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
