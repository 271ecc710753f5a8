"""Begin and end of runs, and the fault or abort that stops a run."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import CAUSE_WIDTH, CONTROL_ABORT, CONTROL_FORGET, CONTROL_START, Cause
from celosia.hdl.component import Component

_STOPS = (CONTROL_ABORT | CONTROL_FORGET).bit_length()


class Outcome(Component):
    """Begins the runs that the host requests, and reports how each run ends.

    In a cycle with ``control_en`` at 1, the host writes ``control`` to the register CONTROL. A
    write of bit START requests a run. ``start`` is then 1 for one cycle, as soon as ``recovered``
    is 1. ``recovered`` is 0 while the core is reset after an aborted run.

    A run, from its request on, ends by the first of these events. ``cause`` is then the reason
    (:class:`celosia.arch.registers.Cause`):

    - ``working`` is 0 in a cycle after ``start``: all work is done. ``cause`` is NONE.
    - The host writes bit ABORT or FORGET of CONTROL. ``cause`` is ABORTED.
    - A bit of ``faults`` is 1 after the run has started. ``cause`` is the number of the lowest such
      bit.
    - ``outside`` is 1 when the run would start: the program counter is not in the program memory.
      The run does not start. ``cause`` is PROGRAM.
    - Bit SILENCE of ``faults`` is 1 before the run has started: external memory does not answer, so
      that the reset of the core cannot finish. The run does not start. ``cause`` is SILENCE.

    ``abort`` is 1 in the cycle of a write of ABORT or FORGET, and in the cycle of a fault after the
    start. The core must then be reset. ``forget`` is 1 in the cycle of a write of FORGET.

    During a run, a write of START is ignored. Only if the same write has the bit ABORT or FORGET,
    the current run ends and a new run is requested.

    ``busy`` is 1 during a run, and while ``recovered`` is 0. After SILENCE, ``busy`` is 0 even if
    ``recovered`` is 0, so that the host does not wait forever.

    When ``busy`` falls after a run, one bit of ``interrupt`` becomes 1: bit 0 if ``cause`` is NONE,
    otherwise bit 1. A bit remains 1 until the host clears it by the same bit of ``take``.
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
