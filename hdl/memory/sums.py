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

    To add to a row of sums, an :class:`AccumulatorMemory` reads the row from block RAM, adds to it,
    and writes the result. In this class, one register stores the row between the block RAM and the
    adders. A sum is written in the cycle that computes it. Subclasses have more registers. Two
    attributes are numbers of additional cycles, 0 in this class:

    - ``latency``: from the read of a row to its addition.
    - ``write_delay``: from the read of a row to the write of its sum.

    If the argument ``sleep`` is true, a register keeps its value in cycles in which it receives no
    new value, which saves power. Otherwise the register loads in every cycle.
    """

    write_delay = 0
    latency = 0

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
        """Return two bits, ``again`` and ``kept``, that select a column adder's first operand.

        - If ``again`` is 1, the operand is the sum that the adder computed last.
        - If ``again`` is 0 and ``kept`` is 1, the operand is the column's sum in the row that was
          read (:meth:`read`).
        - If ``again`` and ``kept`` are 0, the operand is 0.

        The argument ``marks`` is the pair of bits for the addition in the current cycle. This class
        returns ``marks``. The argument ``early`` is only for subclasses with a ``latency`` of 0. It
        is the pair of bits for the addition in the next cycle. A subclass can store it in registers
        near the column, and return the registers.
        """
        return marks

    def read(self, m, banks, adds, drains, add_1, drained_1, add_2, before, total):
        """Return the row for the adders, the row for a drain, and a list of error bits.

        ``banks`` are the two memory banks (:meth:`bank`). All other arguments are signals. They are
        described for a cycle t in which a bank outputs a row:

        - ``add_1``: 1 if the row is for an addition. ``adds`` is then the number of the bank.
        - ``drained_1``: 1 if the row is for a drain. ``drains`` is then the number of the bank.
        - ``add_2``: the value of ``add_1`` in cycle t - 1.
        - ``total``: the row of sums that the adders computed last.
        - ``before``: a list of bits. Bit i is 1 if a bank output the same row for an earlier
          addition in cycle ``t - 2 - i``. The row of cycle t does not include the result of this
          addition yet.

        The row for the adders is returned in cycle ``t + 1 + latency``, and the row for a drain in
        cycle t + 1. If a bit of ``before`` is 1, the row for the adders is the result of the latest
        earlier addition instead of the bank's output.

        The list of error bits is empty in classes that do not correct flipped bits.
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

    Each column has an adder. It adds the column's new sum from the array to the column's sum in the
    row that was read. Machines with the option ``registered`` (more pipeline registers) use this
    class if rows are not corrected. A bank of block RAM outputs a row in a cycle t. The row is then
    processed as follows:

    - At the end of cycle t, the output register of the block RAM stores the row.
    - In cycle t + 1, the adders compute the sums. At the end of the cycle, a register stores them.
    - In cycle t + 2, the sums are written. This is one cycle later than in :class:`DirectSums`.

    An adder's first operand is the sum in the row, the adder's last sum, or 0 (:meth:`begin`). Each
    column has separate registers for the two bits that select this operand, which can be placed
    near the column.
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
    """The registers between accumulator block RAM and adders, with decoders that correct rows.

    Machines with the option ``registered`` use this class if their accumulators have the protection
    level ``correct``. A bank of block RAM outputs a row in a cycle t. A row for an addition is then
    processed as follows:

    - At the end of cycle t, a register stores the row with its check bits.
    - In cycle t + 1, decoders correct flipped bits. At the end of the cycle, a register stores the
      corrected row.
    - In cycle t + 2, an adder for each column adds to the row.
    - In cycle t + 3, the sums are written.

    A row for a drain has only the first register, and is returned corrected in cycle t + 1. The
    errors of each row are reported in cycle t + 2.
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
