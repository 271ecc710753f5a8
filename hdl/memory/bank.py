"""One byte-addressed bank of the scratchpad."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_ram
from celosia.hdl.stream.pipeline import delay


class Bank(Component):
    """A byte-addressed memory of ``size`` bytes; an access has at most ``line_bytes`` bytes.

    - ``read_data``: the bytes from ``read_addr`` on, two cycles after ``read_en``.
    - ``write_data``, ``write_mask``: byte i is written if bit i is 1. Its address is the one among
      the ``line_bytes`` addresses from ``write_addr`` on that is i modulo ``line_bytes``.
    - ``errors``: error bits of the read bytes, one cycle after ``read_data``.

    Throughput is one read and one write per cycle. Addresses are multiples of ``align``, and wrap
    from the last byte to byte 0. A byte that is read in the cycle of its write is undefined. Raises
    :class:`InputError` if ``size``, ``line_bytes`` or ``align`` is too small or not a power of two.
    """

    def __init__(self, line_bytes: int, size: int, level: str = "none", align: int = 1):
        sizes = (("line_bytes", line_bytes, align), ("size", size, 2 * line_bytes))
        for name, value, least in (("align", align, 1), *sizes):
            if value < least or value & (value - 1):
                raise InputError(
                    f"Bank {name} must be a power of two of at least {least}, not {value}"
                )
        addr_width = (size - 1).bit_length()
        line = data.ArrayLayout(unsigned(8), line_bytes)
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(line),
                "write_mask": In(line_bytes),
                "write_addr": In(addr_width),
                "write_data": In(line),
                **error_port(level),
            }
        )

    def circuit(self, m):
        lanes = range(self.line_bytes // self.align)
        low, width = (self.align - 1).bit_length(), (self.line_bytes - 1).bit_length()
        read_offset, write_offset = self.read_addr[low:width], self.write_addr[low:width]
        read_rows = self._rows(m, "read", self.read_addr[width:], read_offset)
        write_rows = self._rows(m, "write", self.write_addr[width:], write_offset)
        write_data = join_groups(list(self.write_data), self.align)
        found = Signal(data.ArrayLayout(unsigned(8 * self.align), len(lanes)), reset_less=True)
        memories = []
        for lane in lanes:
            bits = slice(lane * self.align, (lane + 1) * self.align)
            cells = protected_ram(
                8 * self.align, self.size // self.line_bytes, self.level, part=8, parts=True
            )
            m.submodules[f"lane_{lane}"] = cells
            memories.append(cells)
            m.d.comb += [
                cells.read_en.eq(self.read_en),
                cells.read_addr.eq(read_rows[lane]),
                cells.write_en.eq(self.write_mask[bits]),
                cells.write_addr.eq(write_rows[lane]),
                cells.write_data.eq(write_data[lane]),
            ]
            m.d.sync += found[lane].eq(cells.read_data)
        gather(m, self, errors_of(memories))
        offset = delay(m, read_offset, 2)
        m.d.comb += Cat(self.read_data).eq(Cat(rotate(m, "read", list(found), offset)))

    def _rows(self, m: Module, name: str, row: Value, offset: Value) -> list[Value]:
        """Return each lane's row: lanes before the offset hold bytes of the next row."""
        after = Signal(len(row), name=f"{name}_row_after")
        m.d.comb += after.eq(row + 1)
        return [Mux(offset > lane, after, row) for lane in range(self.line_bytes // self.align)]


def join_groups(values: Sequence[Value], count: int) -> Sequence[Value]:
    """Return adjacent signals joined in groups: a list of words of ``count`` signals each.

    The first signal of each group is in the low bits of the group's word.
    """
    if count == 1:
        return values
    return [Cat(*values[first : first + count]) for first in range(0, len(values), count)]


def rotate(m: Module, name: str, lanes: Sequence[Value], amount: Value) -> list[Value]:
    """Return rotated lanes: result i is lane ``i + amount`` modulo the number of lanes.

    All lanes have the same width, and ``amount`` is below the number of lanes. ``name`` is the
    prefix of the names of intermediate signals.
    """
    width = len(lanes[0])
    value = Cat(lanes)
    for bit in range(len(amount)):
        rotated = Signal(len(value), name=f"{name}_rotated_{bit}")
        m.d.comb += rotated.eq(Mux(amount[bit], value.rotate_right(width << bit), value))
        value = rotated
    return [value[lane * width : (lane + 1) * width] for lane in range(len(lanes))]
