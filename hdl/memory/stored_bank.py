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

    The bank makes one read and one write per cycle. A read of a row in the cycle in which new
    values of the row are stored returns undefined values. ``errors`` (:func:`error_port`) reports
    errors of the row that was read, one cycle after ``row``.
    """

    read_en: Signal
    """1 to read the row at ``read_addr``."""
    read_addr: Signal
    """The row to read."""
    row: data.View
    """Sums of the row, from the next cycle until the next read; undefined before a write."""
    filled: Signal
    """0 if the row was cleared and not written since; together with ``row``."""
    write_stb: Signal
    """1 to write the row at ``write_addr``; its bit ``filled`` becomes 1."""
    clear_stb: Signal
    """1 to set the bit ``filled`` of the row at ``write_addr`` to 0."""
    write_addr: Signal
    """The row to write or to clear."""
    write_row: data.View
    """Sums to write, ``later`` cycles after ``write_stb``."""

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
    """A bank like :class:`AccumulatorBank` that outputs sums uncorrected, with their check bits.

    In ``row``, each sum is followed by its check bits, with which a reader can correct one wrong
    bit. ``errors`` reports only errors of the bit ``filled``. ``write_row`` must follow
    ``write_stb`` by ``WRITTEN_LATER`` cycles.
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
