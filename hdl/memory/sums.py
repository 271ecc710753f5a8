"""Three variants of the registers between an accumulator memory's block RAM and its adders."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from celosia.hdl.memory.protected import WordDecoder, errors_found
from celosia.hdl.memory.stored_bank import WRITTEN_LATER, AccumulatorBank, StoredBank
from celosia.hdl.stream.pipeline import delay, near


class DirectSums:
    """The registers between accumulator block RAM and adders, with the least delay.

    If ``sleep`` is true, a register keeps its value in cycles in which it receives no new value.
    """

    write_delay = 0
    """Additional cycles from the read of a row to the write of its sum."""
    latency = 0
    """Additional cycles from the read of a row to its addition."""

    def __init__(self, layout: data.ArrayLayout, level: str, *, sleep: bool):
        self._layout = layout
        self._level = level
        self._sleep = sleep

    def enable(self, strobe):
        """Return an enable signal for a register that must load in cycles with ``strobe`` at 1.

        If ``sleep`` is true, the result is ``strobe``, so that the register holds in other cycles.
        Otherwise the result is 1.
        """
        return strobe if self._sleep else 1

    def bank(self, depth: int) -> AccumulatorBank | StoredBank:
        """Return a memory bank of ``depth`` rows of sums.

        Write data follow the write strobe by :attr:`write_delay` cycles.
        """
        return AccumulatorBank(depth, self._layout, self._level, later=self.write_delay)

    def begin(self, m, marks, early):
        """Return two bits, ``again`` and ``kept``, that select the first operand of a column adder.

        The operand is the adder's last sum if ``again`` is 1, else the sum that was read if
        ``kept`` is 1, else 0. ``marks`` has the two bits for this cycle, and ``early`` has them for
        the next cycle.
        """
        return marks

    def read(self, m, banks, adds, drains, add_1, drained_1, add_2, before, total):
        """Return the row for the adders, the row for a drain, and a list of error bits.

        Banks output both rows in cycle t. The row for the adders is returned in cycle ``t + 1 +
        latency``, the row for a drain in cycle t + 1. Arguments of cycle t:

        - ``adds``, ``drains``: number of the bank with the row for the adders, or for a drain.
        - ``add_1``, ``drained_1``: 1 if the row for the adders, or for a drain, is used.
        - ``add_2``: ``add_1`` of cycle t - 1.
        - ``before``: bit i is 1 if the same row was added to in cycle t - 2 - i.
        - ``total``: the last row of sums.
        """
        rows = Array(bank.row for bank in banks)
        row = Signal(self._layout, reset_less=True)
        drained = Signal(self._layout, reset_less=True)
        with m.If(self.enable(add_1)):
            m.d.sync += row.eq(Mux(before[0], total, rows[adds]))
        with m.If(self.enable(drained_1)):
            m.d.sync += drained.eq(rows[drains])
        return row, drained, []


class StagedSums(DirectSums):
    """The registers between accumulator block RAM and adders, for shorter timing paths.

    The block RAM's output register stores a row of accumulators. A second register stores the
    adders' results. So sums are written one cycle later than in :class:`DirectSums`.
    """

    write_delay = 1

    def begin(self, m, marks, early):
        again, kept = early
        return near(m, again, reset=True), near(m, kept, reset=True)

    def read(self, m, banks, adds, drains, add_1, drained_1, add_2, before, total):
        layout = self._layout
        rows = Array(data.View(layout, delay(m, bank.row.as_value(), 1)) for bank in banks)
        total = data.View(layout, delay(m, total.as_value(), 1))
        earlier = data.View(layout, delay(m, total.as_value(), 1))
        row = Signal(layout)
        for column, value in enumerate(row):
            follows, far = (near(m, after, reset=True) for after in before)
            found = Array(bank[column] for bank in rows)[near(m, adds, reset=True)]
            m.d.comb += value.eq(Mux(follows, total[column], Mux(far, earlier[column], found)))
        return row, rows[delay(m, drains, 1)], []


class CorrectedSums(StagedSums):
    """The pipeline between accumulator block RAM and adders, with correction of bit errors.

    Wrong bits of a row are corrected in the cycle after the block RAM outputs the row. The adders
    add to the corrected row in the second cycle, in which errors are reported. The third cycle
    writes the sums.
    """

    write_delay = WRITTEN_LATER
    latency = 1

    def bank(self, depth: int) -> AccumulatorBank | StoredBank:
        return StoredBank(depth, self._layout)

    def begin(self, m, marks, early):
        return marks

    def read(self, m, banks, adds, drains, add_1, drained_1, add_2, before, total):
        stored = [bank.row.as_value() for bank in banks]
        words, errors = [], []
        for name, which, uses in (("add", adds, add_1), ("drain", drains, drained_1)):
            row = delay(m, Array(stored)[which], 1, en=self.enable(uses))
            decoders = []
            size = len(row) // self._layout.length
            for column in range(self._layout.length):
                decoder = WordDecoder(self._layout.size // self._layout.length, "correct")
                m.submodules[f"{name}_decoder_{column}"] = decoder
                m.d.comb += decoder.stored.eq(row[column * size : (column + 1) * size])
                decoders.append(decoder)
            words.append(Cat(decoder.word for decoder in decoders))
            wrong = [delay(m, decoder.found, 1) for decoder in decoders]
            errors.append(reduce(or_, (errors_found(found, "correct") for found in wrong)))
        totals = [total.as_value()]
        for _ in before[1:]:
            totals.append(delay(m, totals[-1], 1))
        nearest = totals[-1]
        before = [delay(m, after, 1) for after in before]
        for after, earlier in reversed(list(zip(before[:-1], totals, strict=False))):
            nearest = Mux(after, earlier, nearest)
        word = Mux(Cat(before).any(), nearest, words[0])
        row = delay(m, word, 1, en=self.enable(add_2))
        return data.View(self._layout, row), data.View(self._layout, words[1]), errors


SUMS = (DirectSums, StagedSums, CorrectedSums)
"""Classes of the registers, by ``stages`` (0 or 1); the last class corrects rows."""
