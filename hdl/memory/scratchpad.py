"""The scratchpad: byte-addressed memory in banks, shared by all engines."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import C, Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.access import Access, next_power_of_two
from celosia.arch.errors import InputError
from celosia.hdl.component import Component
from celosia.hdl.memory.bank import Bank, join_groups, rotate
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.ports import ReadPort, WritePort, write_layout
from celosia.hdl.stream.pipeline import data_register, delay, domain_of

READERS = ("b", "a", "v", "r", "store")
"""Readers of the scratchpad: the array's weights and activations, the vector engine's input and
second input, and the store engine."""

WRITERS = ("o", "s", "load")
"""Writers of the scratchpad: the vector engine's output and its written-back sum, and the load
engine."""


class WriteLine(Component):
    """Rotates the bytes of a scratchpad write to their positions in a row of a memory bank.

    ``mask`` has a 1 for each byte of the row that is written. ``data`` has these bytes, and any
    value elsewhere. The outputs are combinational. A write has at most ``width`` bytes.
    """

    def __init__(self, access: Access, *, width: int):
        self.line_bytes = access.line_bytes
        self.align = access.align
        self.width = next_power_of_two(width)
        super().__init__(
            {
                "write": In(write_layout(access)),
                "mask": Out(self.line_bytes),
                "data": Out(8 * self.line_bytes),
            }
        )

    def circuit(self, m):
        write, width, align = self.write, self.width, self.align
        back = Signal((self.line_bytes // align - 1).bit_length())
        m.d.comb += back.eq(-write.addr[(align - 1).bit_length() :])
        covered = [write.count > place for place in range(width)]
        covered = join_groups([*covered, *[C(0, 1)] * (self.line_bytes - width)], align)
        # At most ``width`` bytes are written, so the data repeat with this period.
        parts = join_groups(list(write.data)[:width], align)
        data = rotate(m, "data", parts, back[: (len(parts) - 1).bit_length()])
        m.d.comb += [
            self.mask.eq(Cat(rotate(m, "mask", covered, back))),
            self.data.eq(Cat(data).replicate(self.line_bytes // width)),
        ]


class Scratchpad(Component):
    """A memory of ``scratchpad_bytes`` bytes in ``scratchpad_banks`` banks, shared by all engines.

    Each name in ``readers`` has a port ``read_NAME``. Each name in ``writers`` has a port
    ``write_NAME``; its value is the size of its largest write (bytes). A bank, selected by the high
    address bits, makes one read and one write per cycle. The first port in order has priority, and
    others wait. Data follow an accepted read by ``sram_latency`` cycles, or by ``weight_latency``
    cycles for the first reader. While ``hold`` is 1, only the first reader and all writers but the
    last are accepted. Bytes written in the cycle of their read are undefined. An access must not
    cross the end of a bank.
    """

    def __init__(
        self,
        access: Access,
        writers: Mapping[str, int],
        readers: Sequence[str] = READERS,
        *,
        banks: int,
        bank_bytes: int,
        stages: int = 0,
        level: str = "none",
        throttle: bool = False,
    ):
        if banks < 1 or banks & (banks - 1):
            raise InputError(f"Scratchpad banks must be a power of two, not {banks!r}")
        self.writers, self._widths = tuple(writers), tuple(writers.values())
        self.readers = tuple(readers)
        ports = {f"read_{name}": In(ReadPort(access)) for name in self.readers}
        ports |= {f"write_{name}": In(WritePort(access)) for name in writers}
        if throttle:
            ports["hold"] = In(1)
        super().__init__(ports | error_port(level))

    def circuit(self, m):
        banks = [
            Bank(self.access.line_bytes, self.bank_bytes, self.level, self.access.align)
            for _ in range(self.banks)
        ]
        for index, bank in enumerate(banks):
            m.submodules[f"bank_{index}"] = bank
        # What a bank is asked for, in the cycle in which it is granted or the one after.
        domain = domain_of(m, self.stages)
        self._write(m, banks, domain)
        self._read(m, banks, domain)
        gather(m, self, errors_of(banks))

    def _write(self, m: Module, banks: list[Bank], domain) -> None:
        requests = [getattr(self, f"write_{name}").request for name in self.writers]
        lines = [WriteLine(self.access, width=width) for width in self._widths]
        for name, request, line in zip(self.writers, requests, lines, strict=True):
            m.submodules[f"line_{name}"] = line
            m.d.comb += line.write.eq(request.p)
        asked = [(request.valid, request.p.addr) for request in requests]
        free = self._free(asked)
        if self.throttle:
            free[-1] &= ~self.hold
            asked[-1] = (requests[-1].valid & ~self.hold, requests[-1].p.addr)
        m.d.comb += [r.ready.eq(may) for r, may in zip(requests, free, strict=True)]
        chosen = self._chosen(banks, asked)
        for bank, wanted in zip(banks, chosen, strict=True):
            addr, data = self._asked(m, bank.write_addr), self._asked(m, bank.write_data)
            domain += bank.write_mask.eq(0)
            for request, line, wants in reversed(list(zip(requests, lines, wanted, strict=True))):
                with m.If(wants):
                    domain += [
                        addr.eq(request.p.addr),
                        bank.write_mask.eq(line.mask),
                        data.eq(line.data),
                    ]

    def _read(self, m: Module, banks: list[Bank], domain) -> None:
        ports = [getattr(self, f"read_{name}") for name in self.readers]
        asked = [(port.request.valid, port.request.p) for port in ports]
        valid, addr = asked[0]
        stages = self.stages
        latency = [2 + 2 * stages, *[2 + stages] * (len(ports) - 1)]
        # With ``stages``, other readers wait one cycle after the request of the first reader.
        asked[0] = (delay(m, valid, stages, reset=True), delay(m, addr, stages))
        if self.throttle:
            asked[1:] = [(valid & ~self.hold, addr) for valid, addr in asked[1:]]
        for place, (port, free) in enumerate(zip(ports, self._free(asked), strict=True)):
            held = place and self.throttle
            m.d.comb += port.request.ready.eq(free & ~self.hold if held else free)
        for bank, wanted in zip(banks, self._chosen(banks, asked), strict=True):
            domain += bank.read_en.eq(Cat(wanted).any())
            read_addr = self._asked(m, bank.read_addr)
            for (_, addr), wants in reversed(list(zip(asked, wanted, strict=True))):
                with m.If(wants):
                    domain += read_addr.eq(addr)

        # Each answer comes from the bank of its request, ``latency`` cycles later.
        for port, cycles in zip(ports, latency, strict=True):
            valid = port.request.valid & port.request.ready
            m.d.comb += port.valid.eq(delay(m, valid, cycles, reset=True))
            with m.Switch(delay(m, self._bank(port.request.p), cycles)):
                for index, bank in enumerate(banks):
                    with m.Case(index):
                        m.d.comb += port.data.eq(bank.read_data)

    def _asked(self, m: Module, port):
        """Return the signal that sets a bank's port: with ``registered`` a register."""
        return data_register(m, port, stages=self.stages)

    def _bank(self, addr):
        return addr[(self.bank_bytes - 1).bit_length() :]

    def _free(self, asked):
        """Return for each valid and address whether no earlier request wants the same bank."""
        return [
            ~Cat(
                valid & (self._bank(before) == self._bank(addr)) for valid, before in asked[:place]
            ).any()
            for place, (_, addr) in enumerate(asked)
        ]

    def _chosen(self, banks: list[Bank], asked):
        """Return for each bank the requests that want it; the bank takes the first of them."""
        return [
            [valid & (self._bank(addr) == index) for valid, addr in asked]
            for index in range(len(banks))
        ]
