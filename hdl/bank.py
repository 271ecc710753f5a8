"""One bank of byte-addressed memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.ram import Ram


class Bank(wiring.Component):
    """A memory of ``size`` bytes that reads and writes up to ``line_bytes`` bytes at any address.

    Byte ``i`` lies in row ``i // line_bytes`` of the byte-wide memory ``i % line_bytes``, so an
    access that crosses a row needs only that the memories before the offset take the next row.

    ``read_data`` holds the ``line_bytes`` bytes from ``read_addr`` on, two cycles after
    ``read_en``: one for the memories, one for the rotation. ``write_en`` writes the first
    ``write_count`` bytes of ``write_data`` from ``write_addr`` on; a read of the cycle after sees
    them, a read of the same cycle may see anything in their place. One read and one write a
    cycle. Past the last byte an access goes on at the first.

    Raises :class:`ValueError` where a size cannot work.
    """

    def __init__(self, line_bytes: int, size: int):
        for name, value, least in (("line_bytes", line_bytes, 1), ("size", size, 2 * line_bytes)):
            if value < least or value & (value - 1):
                raise ValueError(
                    f"Bank {name} must be a power of two of at least {least}, not {value}"
                )
        self.line_bytes = line_bytes
        self.size = size
        addr_width = (size - 1).bit_length()
        line = data.ArrayLayout(unsigned(8), line_bytes)
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(line),
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_count": In(range(line_bytes + 1)),
                "write_data": In(line),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        lanes = range(self.line_bytes)
        width = (self.line_bytes - 1).bit_length()
        read_offset, write_offset = self.read_addr[:width], self.write_addr[:width]
        read_rows = self._rows(m, "read", self.read_addr[width:], read_offset)
        write_rows = self._rows(m, "write", self.write_addr[width:], write_offset)

        # Each byte travels with whether it is written.
        bytes_in = [Cat(self.write_data[lane], self.write_count > lane) for lane in lanes]
        backwards = (-write_offset)[:width] if width else write_offset
        bytes_in = self._rotate(m, "write", bytes_in, backwards)
        bytes_out = []
        for lane in lanes:
            m.submodules[f"lane_{lane}"] = cells = Ram(
                8, self.size // self.line_bytes, ordered=False
            )
            m.d.comb += [
                cells.read_en.eq(self.read_en),
                cells.read_addr.eq(read_rows[lane]),
                cells.write_en.eq(self.write_en & bytes_in[lane][8]),
                cells.write_addr.eq(write_rows[lane]),
                cells.write_data.eq(bytes_in[lane][:8]),
            ]
            bytes_out.append(cells.read_data)

        offset = Signal(width)
        arrived = Signal()
        m.d.sync += [offset.eq(read_offset), arrived.eq(self.read_en)]
        bytes_out = self._rotate(m, "read", bytes_out, offset)
        with m.If(arrived):
            m.d.sync += self.read_data.eq(Cat(bytes_out))
        return m

    def _rows(self, m: Module, name: str, row: Value, offset: Value) -> list[Value]:
        """Return each lane's row: lanes before the offset hold bytes of the next row."""
        after = Signal(len(row), name=f"{name}_row_after")
        m.d.comb += after.eq(row + 1)
        return [Mux(offset > lane, after, row) for lane in range(self.line_bytes)]

    @staticmethod
    def _rotate(m: Module, name: str, lanes: list[Value], amount: Value) -> list[Value]:
        """Return the lanes rotated down: result i is lane (i + amount) modulo their number."""
        width = len(lanes[0])
        value = Cat(lanes)
        for bit in range(len(amount)):
            rotated = Signal(len(value), name=f"{name}_rotated_{bit}")
            m.d.comb += rotated.eq(Mux(amount[bit], value.rotate_right(width << bit), value))
            value = rotated
        return [value[lane * width : (lane + 1) * width] for lane in range(len(lanes))]
