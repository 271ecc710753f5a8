"""Two classes of memory banks for rows of accumulators, in block RAM.

An :class:`AccumulatorBank` can detect or correct flipped bits. A :class:`StoredBank` outputs rows
with their check bits, and the circuit that reads a row corrects flipped bits.
"""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.protection import check_bits, code_columns
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import coded, error_port, protected_ram
from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay

WRITTEN_LATER = 2
"""Cycles by which a :class:`StoredBank` writes a row later than other banks."""


class AccumulatorBank(Component):
    """A bank of accumulator rows, each with a bit ``filled`` that is 0 for a cleared row.

    The bank can read one row and write one row in each cycle. A cycle with ``read_en`` at 1 reads
    the row at ``read_addr``. From the next cycle until the next read, ``row`` has the row's sums,
    and ``filled`` has its bit.

    - To clear a row, set ``clear_stb`` to 1 and ``write_addr`` to the row's address. The row's bit
      ``filled`` becomes 0. Its sums do not change.
    - To write a row in cycle t, set ``write_stb`` to 1 and ``write_addr`` to the row's address in
      cycle t. The row's bit ``filled`` becomes 1 at the end of cycle t. ``write_row`` must have the
      sums in cycle ``t + later``; they are stored at the end of this cycle. ``later`` is an
      argument of the constructor (cycles).

    A read in the cycle in which the same sums, or the same bit ``filled``, are stored returns
    undefined values for them. The sums of a row that was never written are undefined.

    If the protection level ``level`` is not ``none``, rows have check bits. ``errors``
    (:func:`error_port`) then reports the errors of a row one cycle after the row appears on
    ``row``.
    """

    read_en: Signal
    read_addr: Signal
    row: data.View
    filled: Signal
    write_stb: Signal
    clear_stb: Signal
    write_addr: Signal
    write_row: data.View

    def __init__(
        self, depth: int, layout: data.ArrayLayout, level: str = "none", *, later: int = 0
    ):
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "row": Out(layout),
                "filled": Out(1),
                "write_stb": In(1),
                "clear_stb": In(1),
                "write_addr": In(addr_width),
                "write_row": In(layout),
                **error_port(level),
            }
        )

    def circuit(self, m):
        size, part = self.layout.size, self.layout.size // self.layout.length
        m.submodules.rows = rows = protected_ram(size, self.depth, self.level, part=part)
        m.submodules.marks = marks = protected_ram(1, self.depth, self.level)
        if self.level != "none":
            # Rows that hold no sum may be anything.
            filled = delay(m, self.filled, 1)
            m.d.comb += self.errors.eq(Mux(filled, rows.errors, 0) | marks.errors)
        m.d.comb += [
            rows.read_en.eq(self.read_en),
            rows.read_addr.eq(self.read_addr),
            self.row.eq(rows.read_data),
            marks.read_en.eq(self.read_en),
            marks.read_addr.eq(self.read_addr),
            self.filled.eq(marks.read_data),
            rows.write_addr.eq(delay(m, self.write_addr, self.later)),
            rows.write_data.eq(self.write_row),
            rows.write_en.eq(delay(m, self.write_stb, self.later, reset=True)),
            marks.write_addr.eq(self.write_addr),
            marks.write_data.eq(self.write_stb),
            marks.write_en.eq(self.write_stb | self.clear_stb),
        ]


class StoredBank(Component):
    """A bank of accumulator rows that outputs each row with its check bits, uncorrected.

    The ports have the meaning that they have in :class:`AccumulatorBank`, except for the following:

    - ``row`` has each sum as it is stored, followed by its check bits. The check bits are those of
      the protection level with the name ``correct``, which can correct one wrong bit in each sum.
      The receiver of ``row`` must correct the sums.
    - The bank itself corrects the bit ``filled`` of a row (0 for a cleared row). ``errors`` reports
      the errors of this bit only.
    - ``write_row`` must have the sums of a row ``WRITTEN_LATER`` cycles after the cycle with
      ``write_stb`` at 1. Until then, the receiver can correct the row and add to it.
    """

    def __init__(self, depth: int, layout: data.ArrayLayout):
        self._part = layout.size // layout.length
        self._columns = code_columns(self._part, "correct")
        size = self._part + check_bits(self._columns)
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "row": Out(data.ArrayLayout(size, layout.length)),
                "filled": Out(1),
                "write_stb": In(1),
                "clear_stb": In(1),
                "write_addr": In(addr_width),
                "write_row": In(layout),
                **error_port("correct"),
            }
        )

    def circuit(self, m):
        stored = coded(self.write_row.as_value(), self._part, self._columns)
        m.submodules.rows = rows = Ram(len(stored), self.depth, ordered=False)
        m.submodules.marks = marks = protected_ram(1, self.depth, "correct")
        m.d.comb += [
            rows.read_en.eq(self.read_en),
            rows.read_addr.eq(self.read_addr),
            self.row.eq(rows.read_data),
            rows.write_en.eq(delay(m, self.write_stb, WRITTEN_LATER, reset=True)),
            rows.write_addr.eq(delay(m, self.write_addr, WRITTEN_LATER)),
            rows.write_data.eq(stored),
            marks.read_en.eq(self.read_en),
            marks.read_addr.eq(self.read_addr),
            self.filled.eq(marks.read_data),
            marks.write_en.eq(self.write_stb | self.clear_stb),
            marks.write_addr.eq(self.write_addr),
            marks.write_data.eq(self.write_stb),
            self.errors.eq(marks.errors),
        ]
