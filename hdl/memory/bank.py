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

    Throughput is one read and one write per cycle. Addresses are byte addresses, and multiples of
    ``align``; lower address bits are ignored. A row has ``line_bytes`` bytes. An access may begin
    at any aligned byte of a row. It continues in the next row, and wraps from the last byte of the
    memory to byte 0.

    Two cycles after ``read_en``, ``read_data`` has ``line_bytes`` bytes. Byte 0 of ``read_data`` is
    the byte at ``read_addr``, and the bytes at the next addresses follow.

    ``write_data`` has each byte at its position in a row, so the caller must rotate the bytes. For
    example, ``line_bytes`` is 8, and 6 bytes are written from address 21 on, which is byte 5 of row
    2:

    - Bytes 5, 6 and 7 of ``write_data`` are written to bytes 5, 6 and 7 of row 2.
    - Bytes 0, 1 and 2 of ``write_data`` are written to bytes 0, 1 and 2 of row 3.
    - Bits 3 and 4 of ``write_mask`` are 0, all other bits are 1. A byte whose bit of ``write_mask``
      is 0 is not written.

    A read returns bytes that were written in earlier cycles; bytes written in the cycle of the read
    are undefined. ``level`` is the protection level: ``none``, ``detect`` or ``correct``. If the
    level is not ``none``, each byte has check bits, and ``errors`` reports errors in the bytes that
    are read (:class:`celosia.hdl.memory.protected.ProtectedRam`).

    Raises :class:`InputError` if ``align``, ``line_bytes`` or ``size`` is not a power of two, if
    ``line_bytes`` is less than ``align``, or if ``size`` is less than two rows.
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
        write_data = together(list(self.write_data), self.align)
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


def together(values: Sequence[Value], count: int) -> Sequence[Value]:
    """Return a list of words, each of ``count`` adjacent values, the first in the low bits."""
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
