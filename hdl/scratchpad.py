"""The scratchpad: banks of byte-addressed memory between all engines."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from arch.config import SRAM_LATENCY, Config
from hdl.bank import Bank
from hdl.ports import ReadPort, WritePort

READERS = ("b", "a", "v", "r", "store")
"""Readers of the whole machine: the array's weights and activations, the vector engine's input and
second input, the store engine."""

WRITERS = ("o", "s", "load")
"""Writers of the whole machine: the vector engine's output and written-back sum, the load
engine."""


class Scratchpad(wiring.Component):
    """``scratchpad_bytes`` bytes in ``scratchpad_banks`` banks, shared by readers and writers.

    Ports ``read_NAME`` and ``write_NAME`` for each name given, as ``hdl.ports`` defines them. The
    high address bits choose the bank, and each bank takes one read and one write a cycle. Among
    ports that want the same bank the first named wins, in the same cycle (``ready`` depends on
    ``valid``). The order is fixed: ``b`` comes first because a tile's weights must come without a
    gap, and ``a`` next because an array whose activations stop loses ``rows * cols`` products a
    cycle; an engine behind them waits at most for the end of a command, as every command ends.
    Weights that share a bank with the activations cost a cycle a line in whatever order.

    A read sees every write of an earlier cycle; what is written in the same cycle may look like
    anything, as engines are ordered by tokens. An access must not cross from one bank to the next:
    bytes past a bank's end are undefined when read, and when written go to the bank's start.
    """

    def __init__(
        self, config: Config, readers: Sequence[str] = READERS, writers: Sequence[str] = WRITERS
    ):
        self.config = config
        self.readers = tuple(readers)
        self.writers = tuple(writers)
        ports = {f"read_{name}": In(ReadPort(config)) for name in self.readers}
        ports |= {f"write_{name}": In(WritePort(config)) for name in self.writers}
        super().__init__(ports)

    def elaborate(self, _platform):
        m = Module()
        banks = [
            Bank(self.config.line_bytes, self.config.bank_bytes)
            for _ in range(self.config.scratchpad_banks)
        ]
        for index, bank in enumerate(banks):
            m.submodules[f"bank_{index}"] = bank
        self._write(m, banks)
        self._read(m, banks)
        return m

    def _write(self, m: Module, banks: list[Bank]) -> None:
        requests = [getattr(self, f"write_{name}").request for name in self.writers]
        chosen = self._grant(m, banks, requests, [request.p.addr for request in requests])
        for bank, wanted in zip(banks, chosen, strict=True):
            m.d.comb += bank.write_en.eq(Cat(wanted).any())
            for request, wants in reversed(list(zip(requests, wanted, strict=True))):
                with m.If(wants):
                    m.d.comb += [
                        bank.write_addr.eq(request.p.addr),
                        bank.write_count.eq(request.p.count),
                        bank.write_data.eq(request.p.data),
                    ]

    def _read(self, m: Module, banks: list[Bank]) -> None:
        ports = [getattr(self, f"read_{name}") for name in self.readers]
        requests = [port.request for port in ports]
        chosen = self._grant(m, banks, requests, [request.p for request in requests])
        for bank, wanted in zip(banks, chosen, strict=True):
            m.d.comb += bank.read_en.eq(Cat(wanted).any())
            for request, wants in reversed(list(zip(requests, wanted, strict=True))):
                with m.If(wants):
                    m.d.comb += bank.read_addr.eq(request.p)

        # Each answer is found where its request went, as many cycles later.
        for name, port in zip(self.readers, ports, strict=True):
            valid, bank_index = port.request.valid & port.request.ready, self._bank(port.request.p)
            for stage in range(SRAM_LATENCY):
                valid_after = Signal(name=f"{name}_valid_{stage}")
                bank_after = Signal(len(bank_index), name=f"{name}_bank_{stage}")
                m.d.sync += [valid_after.eq(valid), bank_after.eq(bank_index)]
                valid, bank_index = valid_after, bank_after
            m.d.comb += port.valid.eq(valid)
            with m.Switch(bank_index):
                for index, bank in enumerate(banks):
                    with m.Case(index):
                        m.d.comb += port.data.eq(bank.read_data)

    def _bank(self, addr):
        return addr[(self.config.bank_bytes - 1).bit_length() :]

    def _grant(self, m: Module, banks, requests, addrs):
        """Make each request ready that no earlier one keeps from its bank.

        Returns for each bank which requests want it; the first of them is the one that is taken.
        """
        indices = [self._bank(addr) for addr in addrs]
        for place, request in enumerate(requests):
            blocked = [
                earlier.valid & (indices[before] == indices[place])
                for before, earlier in enumerate(requests[:place])
            ]
            m.d.comb += request.ready.eq(~Cat(blocked).any())
        return [
            [
                request.valid & (index == bank)
                for request, index in zip(requests, indices, strict=True)
            ]
            for bank in range(len(banks))
        ]
