"""Lookup tables of 8-bit activation functions, which can be loaded while the machine runs."""

from amaranth.hdl import Cat, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.errors import InputError
from celosia.arch.functions import TABLE_ENTRIES
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_ram
from celosia.hdl.stream.pipeline import data_register


class TableWritePort(wiring.Signature):
    """The write port of a :class:`LookupTable` with ``slots`` tables, seen from the writer.

    - ``en``: 1 to write an entry.
    - ``slot``: the table.
    - ``index``: the entry, 0 to 255.
    - ``value``: the entry's new value.
    """

    def __init__(self, slots: int):
        slot = unsigned(max(1, ceil_log2(slots)))
        super().__init__(
            {"en": Out(1), "slot": Out(slot), "index": Out(8), "value": Out(signed(8))}
        )


class LookupTable(Component):
    """Tables of 256 signed bytes: ``slots`` tables, with a copy for each of ``lanes`` lanes.

    ``value`` is entry ``index`` + 128 of table ``slot``, after ``TABLE_LATENCY`` cycles with ``en``
    at 1. ``write`` writes an entry of all copies of a table. Raises :class:`InputError` if
    ``lanes`` or ``slots`` is below 1.
    """

    def __init__(self, lanes: int, slots: int = 1, level: str = "none"):
        for name, count in (("lanes", lanes), ("slots", slots)):
            if count < 1:
                raise InputError(f"Table {name} must be a positive integer, not {count!r}")
        super().__init__(
            {
                "en": In(1),
                "index": In(data.ArrayLayout(signed(8), lanes)),
                "slot": In(max(1, ceil_log2(slots))),
                "value": Out(data.ArrayLayout(signed(8), lanes)),
                "write": In(TableWritePort(slots)),
                **error_port(level),
            }
        )

    def circuit(self, m):
        """Instantiate one memory for each lane; each memory stores all tables."""
        copies, value = [], data_register(m, self.value)
        for lane in range(self.lanes):
            depth = self.slots * TABLE_ENTRIES
            ram = protected_ram(8, depth, self.level)
            m.submodules[f"table_{lane}"] = ram
            copies.append(ram)
            index = self.index[lane].as_unsigned()
            m.d.comb += [
                ram.write_en.eq(self.write.en),
                ram.write_addr.eq(Cat(self.write.index, self.write.slot)),
                ram.write_data.eq(self.write.value),
                ram.read_en.eq(self.en),
                # Offset binary: -128 is first.
                ram.read_addr.eq(Cat(index[:7], ~index[7], self.slot)),
            ]
            # Block RAM outputs arrive late in the cycle.
            with m.If(self.en):
                m.d.sync += value[lane].eq(ram.read_data)
        gather(m, self, errors_of(copies))
