"""The state of the banks of an SDRAM chip, and the commands that each bank may receive."""

from amaranth.hdl import Array, Cat, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.sdram import SdramChip, SdramTiming
from celosia.hdl.component import Component


class Banks(Component):
    """Tracks the open row of each SDRAM bank, and when the bank may receive its next commands.

    - ``activate``: 1 if row ``opened`` of bank ``target`` is opened.
    - ``precharge``: 1 if the row of bank ``target`` is closed.
    - ``precharge_all``: 1 if all rows are closed.
    - ``write``: 1 if bank ``written`` is written.
    - ``accessible``: 1 if ``row`` of ``bank`` is open, and may be accessed two cycles later.
    - ``may_activate``: 1 if ``bank`` has no open row, and may open one in the next cycle.
    - ``may_precharge``: 1 if ``bank`` has another open row, and may close it in the next cycle.
    - ``rested``: 1 if all rows may be closed in the next cycle.

    The commands of this cycle affect the outputs from the next cycle on.
    """

    def __init__(self, chip: SdramChip, timing: SdramTiming):
        super().__init__(
            {
                "bank": In(chip.bank_bits),
                "row": In(chip.row_bits),
                "target": In(chip.bank_bits),
                "opened": In(chip.row_bits),
                "written": In(chip.bank_bits),
                "activate": In(1),
                "precharge": In(1),
                "precharge_all": In(1),
                "write": In(1),
                "accessible": Out(1),
                "may_activate": Out(1),
                "may_precharge": Out(1),
                "rested": Out(1),
            }
        )

    def circuit(self, m):
        timing = self.timing
        # A row stays open until it could be reopened at once: tRC may exceed tRAS plus tRP.
        ras = max(timing.ras, timing.rc - timing.rp)
        apart = self._countdown(m, "apart", timing.rrd - 1, self.activate)
        accessible, closes, opens, closable = [], [], [], []
        for index in range(1 << self.chip.bank_bits):
            here = Signal(name=f"here_{index}")
            m.d.comb += here.eq(self.target == index)
            is_open = Signal(name=f"open_{index}")
            row = Signal(self.chip.row_bits, name=f"row_{index}")
            begins, ends = here & self.activate, (here & self.precharge) | self.precharge_all
            writes = self.write & (self.written == index)
            with m.If(begins):
                m.d.sync += [is_open.eq(1), row.eq(self.opened)]
            with m.If(ends):
                m.d.sync += is_open.eq(0)
            ready = self._countdown(m, f"rcd_{index}", timing.rcd - 2, begins)
            held = self._countdown(m, f"ras_{index}", ras - 1, begins)
            wrote = self._countdown(m, f"wr_{index}", timing.wr - 1, writes)
            settled = self._countdown(m, f"rp_{index}", timing.rp - 1, ends)
            # Every bank compares its row, so that the bank number is used as late as possible.
            same = row == self.row
            accessible.append(is_open & same & ready)
            closes.append(is_open & ~same & held & wrote)
            opens.append(~is_open & settled)
            closable.append(held & wrote)
        m.d.comb += [
            self.accessible.eq(Array(accessible)[self.bank]),
            self.may_activate.eq(Array(opens)[self.bank] & apart),
            self.may_precharge.eq(Array(closes)[self.bank]),
            self.rested.eq(Cat(closable).all()),
        ]

    def _countdown(self, m, name, cycles, begins):
        """Return whether ``cycles`` cycles, at least one, have passed since that of ``begins``."""
        cycles = max(1, cycles)
        left = Signal(range(cycles), name=f"{name}_left")
        over = Signal(init=1, name=f"{name}_over")
        with m.If(begins):
            m.d.sync += [left.eq(cycles - 1), over.eq(cycles == 1)]
        with m.Elif(~over):
            m.d.sync += [left.eq(left - 1), over.eq(left == 1)]
        return over
