"""Event counters, stored in one memory."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Const, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.registers import COUNTER_WIDTH
from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay


class Counters(Component):
    """Counters of ``COUNTER_WIDTH`` bits; each cycle adds ``count_NAME`` to the counter NAME.

    ``widths`` maps NAME to the width of ``count_NAME`` (bits). ``value`` is the counter that
    ``index`` selected in the previous cycle. ``hold`` is 1 during a run. ``settled`` becomes 1
    ``max(3, len(widths)) + 4`` cycles after the end of ``hold``, when the counters are complete.
    """

    clear: Signal
    """1 to set all counters to 0."""

    def __init__(self, widths: Mapping[str, int], places: Sequence[int] = ()):
        self.widths = dict(widths)
        # The values of ``index`` that select the counters, in the order of ``widths``.
        self.places = list(places or range(len(self.widths)))
        # A position without a counter, written in turns that have no counter.
        self.nobody = min(set(range(len(self.places) + 1)) - set(self.places))
        self.index_width = max(self.nobody, *self.places).bit_length()
        super().__init__(
            {
                "clear": In(1),
                "hold": In(1),
                "settled": Out(1),
                "index": In(self.index_width),
                "value": Out(COUNTER_WIDTH),
                **{f"count_{name}": In(width) for name, width in self.widths.items()},
            }
        )

    def circuit(self, m):
        turns = max(3, len(self.widths))
        # The counter to read in this cycle and to write two cycles later; and a bit for each.
        turn = Signal(range(turns))
        first = Signal()
        own = Signal(turns, init=1)
        place = delay(m, turn, 2)
        m.d.sync += [turn.eq(Mux(own[-1], 0, turn + 1)), own.eq(Cat(own[-1], own[:-1]))]
        with m.If(own[-1]):
            m.d.sync += first.eq(0)
        with m.If(self.clear):
            m.d.sync += [turn.eq(0), own.eq(1), first.eq(1)]

        # Increments since a counter's last turn; those in the cycle of its turn are kept.
        sizes = {
            name: (turns * ((1 << width) - 1)).bit_length() for name, width in self.widths.items()
        }
        collected = Signal(max(sizes.values(), default=1))
        chosen = []
        for index, (name, width) in enumerate(self.widths.items()):
            recent = Signal(sizes[name], name=f"recent_{name}")
            added = Signal(width, name=f"added_{name}")
            m.d.sync += [
                added.eq(getattr(self, f"count_{name}")),
                recent.eq(Mux(own[index], 0, recent) + added),
            ]
            with m.If(self.clear):
                m.d.sync += [added.eq(0), recent.eq(0)]
            chosen.append(Mux(own[index], recent, 0))
        m.d.sync += collected.eq(reduce(or_, chosen, Const(0)))

        # Two copies of one memory, one for the host to read. The other's read and write positions
        # differ, except just after a clear, when its content does not count.
        before = Signal(COUNTER_WIDTH)
        total = Signal(COUNTER_WIDTH)
        m.submodules.totals = totals = Ram(COUNTER_WIDTH, turns, ordered=False)
        m.submodules.shown = shown = Ram(COUNTER_WIDTH, 1 << self.index_width)
        turn_places = Array([*self.places, *[self.nobody] * (turns - len(self.places))])
        m.d.comb += [
            total.eq(before + delay(m, collected, 1)),
            totals.read_addr.eq(turn),
            shown.read_addr.eq(self.index),
            self.value.eq(shown.read_data),
        ]
        m.d.sync += before.eq(Mux(delay(m, first, 1), 0, totals.read_data))
        for ram in (totals, shown):
            m.d.comb += [
                ram.read_en.eq(1),
                ram.write_en.eq(1),
                ram.write_data.eq(total),
            ]
        m.d.comb += totals.write_addr.eq(place)
        m.d.sync += shown.write_addr.eq(turn_places[delay(m, turn, 1)])

        # ``hold`` is 1 during a run; increments in the first cycle after it still count.
        settling = Signal(range(turns + 5))
        m.d.comb += self.settled.eq(settling == 0)
        with m.If(self.hold):
            m.d.sync += settling.eq(turns + 4)
        with m.Elif(~self.settled):
            m.d.sync += settling.eq(settling - 1)
