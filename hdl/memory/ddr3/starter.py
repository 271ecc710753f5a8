"""Starts LiteDRAM's core and the DDR3 chip, and finds the read delay of each byte lane."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.ddr3 import DELAYS, SLIPS, Ddr3Start, Kind
from celosia.hdl.component import Component

_LISTS = ("wake", "first", "later", "slip", "test", "begin")
_WAITS = range(18)  # exponents of two (cycles)


class Starter(Component):
    """Initializes the DDR3 chip, and finds the read delay and the bit slip of each byte lane.

    - ``cyc`` to ``ack``: Wishbone bus to LiteDRAM's core.
    - ``delay``, ``place``: read delay and bit slip of each lane.
    - ``over``: 1 after the initialization.
    - ``failed``: 1 if a lane fails the test at every setting, or the final test of all lanes fails.
    """

    def __init__(self, start: Ddr3Start):
        super().__init__(
            {
                "cyc": Out(1),
                "stb": Out(1),
                "we": Out(1),
                "adr": Out(30),
                "dat_w": Out(32),
                "dat_r": In(32),
                "ack": In(1),
                "over": Out(1),
                "failed": Out(1),
                "delay": Out(data.ArrayLayout(range(DELAYS), start.chip.lanes)),
                "place": Out(data.ArrayLayout(range(SLIPS), start.chip.lanes)),
            }
        )

    def _table(self, m):
        """Place the memory of steps; return its address, its output, and each list's start."""
        steps, begins = [], {}
        for name in _LISTS:
            begins[name] = len(steps)
            listed = getattr(self.start, name)
            steps += [(step, step is listed[-1]) for step in listed]
        words = max(step.addr for step, _ in steps) // 4
        layout = data.StructLayout(
            {
                "adr": range(words + 1),
                "data": 32,
                "kind": range(len(Kind)),
                "wait": range(len(_WAITS)),
                "last": 1,
            }
        )
        init = [
            {
                "adr": step.addr // 4,
                "data": step.data,
                "kind": step.kind.value,
                "wait": ceil_log2(step.wait),
                "last": last,
            }
            for step, last in steps
        ]
        m.submodules.table = table = Memory(shape=layout, depth=len(steps), init=init)
        port = table.read_port()
        return port.addr, port.data, begins

    def circuit(self, m):
        lanes = self.start.chip.lanes
        index, step, begins = self._table(m)
        selected, wrong = Signal(lanes), Signal(lanes)
        wait = Signal(_WAITS[-1] + 1)
        begin, done = Signal(), Signal()  # of a list
        m.d.comb += [
            self.adr.eq(step.adr),
            self.we.eq((step.kind == Kind.WRITE.value) | (step.kind == Kind.SELECT.value)),
            self.dat_w.eq(Mux(step.kind == Kind.SELECT.value, selected, step.data)),
        ]
        differs = self.dat_r ^ step.data
        with m.If(self.stb & self.ack):
            for lane in range(lanes):
                bytes_of = [differs.word_select(byte, 8) for byte in range(lane, 4, lanes)]
                with m.If((step.kind == Kind.CHECK.value) & Cat(*bytes_of).any()):
                    m.d.sync += wrong[lane].eq(1)
                with m.If((step.kind == Kind.SEEN.value) & ~self.dat_r[lane]):
                    m.d.sync += wrong[lane].eq(1)
        with m.FSM(name="bus"):
            with m.State("FETCH"):
                m.next = "ACCESS"
            with m.State("ACCESS"):
                m.d.comb += [self.cyc.eq(1), self.stb.eq(1)]
                with m.If(self.ack):
                    m.d.sync += wait.eq((1 << step.wait) - 1)
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.comb += done.eq(step.last)
                    m.d.sync += index.eq(index + 1)
                    m.next = "FETCH"
                    with m.If(step.last & ~begin):
                        m.next = "IDLE"
            with m.State("IDLE"), m.If(begin):
                m.next = "FETCH"
        self._search(m, index, begins, begin, done, selected, wrong)

    def _search(self, m, index, begins, begin, done, selected, wrong):
        """Select the lists, and keep each lane's longest run of passing delays."""
        lanes = self.start.chip.lanes
        delay, place = Signal(range(DELAYS)), Signal(range(SLIPS))
        lane = Signal(range(lanes))
        runs = [Signal(range(DELAYS + 1), name=f"run_{n}") for n in range(lanes)]
        best = [Signal(range(DELAYS + 1), name=f"best_{n}") for n in range(lanes)]
        # Remaining steps of the lane to its chosen setting.
        slips, delays = Signal(range(SLIPS)), Signal(range(DELAYS))

        def go(name: str, state: str) -> None:
            m.d.comb += begin.eq(1)
            m.d.sync += index.eq(begins[name])
            m.next = state

        with m.FSM(name="search"):
            with m.State("WAKE"), m.If(done):
                m.d.sync += selected.eq((1 << lanes) - 1)
                go("first", "MOVE")
            with m.State("MOVE"), m.If(done):
                m.d.sync += wrong.eq(0)
                go("test", "TEST")
            with m.State("TEST"), m.If(done):
                for n, (run, longest) in enumerate(zip(runs, best, strict=True)):
                    now = Signal(range(DELAYS + 1), name=f"now_{n}")
                    m.d.comb += now.eq(Mux(wrong[n], 0, run + 1))
                    m.d.sync += run.eq(Mux(delay == DELAYS - 1, 0, now))
                    with m.If(now > longest):
                        m.d.sync += [
                            longest.eq(now),
                            self.place[n].eq(place),
                            self.delay[n].eq(delay - ((now - 1) >> 1)),
                        ]
                m.d.sync += delay.eq(delay + 1)
                with m.If(delay != DELAYS - 1):
                    go("later", "MOVE")
                with m.Else():
                    m.d.sync += place.eq(place + 1)
                    with m.If(place != SLIPS - 1):
                        go("slip", "MOVE")
                    with m.Else():
                        m.d.sync += selected.eq(1)
                        go("first", "CHOOSE")
            with m.State("CHOOSE"), m.If(done):
                m.d.sync += [slips.eq(Array(self.place)[lane]), delays.eq(Array(self.delay)[lane])]
                m.next = "STEP"
            with m.State("STEP"):
                with m.If(slips != 0):
                    m.d.sync += slips.eq(slips - 1)
                    go("slip", "STEPS")
                with m.Elif(delays != 0):
                    m.d.sync += delays.eq(delays - 1)
                    go("later", "STEPS")
                with m.Elif(lane != lanes - 1):
                    m.d.sync += [lane.eq(lane + 1), selected.eq(selected << 1)]
                    go("first", "CHOOSE")
                with m.Else():
                    m.d.sync += wrong.eq(0)
                    go("test", "PROVE")
            with m.State("STEPS"), m.If(done):
                m.next = "STEP"
            with m.State("PROVE"), m.If(done):
                unusable = Cat(longest == 0 for longest in best).any()
                m.d.sync += self.failed.eq(wrong.any() | unusable)
                go("begin", "BEGIN")
            with m.State("BEGIN"), m.If(done):
                m.d.sync += self.over.eq(1)
