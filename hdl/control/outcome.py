"""Begins runs, ends them, and remembers how they ended."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import CAUSE_WIDTH, CONTROL_ABORT, CONTROL_FORGET, CONTROL_START, Cause
from celosia.hdl.component import Component

_STOPS = (CONTROL_ABORT | CONTROL_FORGET).bit_length()


class Outcome(Component):
    """The bits of CONTROL, STATUS and INTERRUPT.

    ``control`` is what the host writes with ``control_en``. A run that is asked for begins with
    ``start``, for one cycle, where ``recovered`` says that the core may; if not, it is kept until
    then. It is over when ``working`` is 0, or stopped by the first of ``faults``, a bit for each
    :class:`celosia.arch.registers.Cause`, and by an abort of the host: both give ``abort``. Where
    the program counter is ``outside`` the program no run begins. SILENCE also ends the wait of a
    run that has not begun, and ``busy`` no longer counts that the core is not recovered: it falls
    after every start.

    ``interrupt`` keeps that a run has ended, or was stopped, until ``take`` has the bit;
    ``irq`` is 1 where one of those is in ``enable``.
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

    def elaborate(self, _platform):
        m = Module()
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

        # A register, as what starts is everywhere.
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
        return m
