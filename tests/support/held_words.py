"""A memory with a register behind it, and a record of its outputs."""

from typing import Any

import numpy as np
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram
from celosia.hdl.memory.split_ram import SplitRam
from celosia.hdl.stream.pipeline import KEPT
from tests.support.simulation import run_bench


class Sink(Component):
    """A register with an enable or none, and a reset to ``start`` or none.

    A second one of the lowest ``again`` bits holds the same, and takes it when the first does not
    with ``apart``. With ``keep`` synthesis leaves them where they are.
    """

    def __init__(
        self,
        width: int,
        *,
        enable: bool,
        reset: bool,
        start: int = 0,
        again: int = 0,
        apart: bool = False,
        keep: bool = False,
    ):
        self.width = width
        self.has_enable = enable
        self.has_reset = reset
        self.start = start
        self.again = again
        self.apart = apart
        self.keep = keep
        super().__init__(
            {
                "word": In(width),
                "enable": In(1),
                "clear": In(1),
                "held": Out(width),
                "copy": Out(again),
            }
        )

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        takes = self.enable if self.has_enable else 1
        registers = [(self.width, takes, self.held)]
        if self.again:
            registers.append((self.again, ~self.enable if self.apart else takes, self.copy))
        for width, when, port in registers:
            attributes = dict(KEPT) if self.keep else {}
            held = Signal(width, reset_less=True, init=self.start, attrs=attributes)
            with m.If(when):
                m.d.sync += held.eq(self.word[:width])
            if self.has_reset:
                with m.If(self.clear):
                    m.d.sync += held.eq(self.start)
            m.d.comb += port.eq(held)
        return m


class Held(Component):
    """A memory, and a register behind it; ``deep`` has the memory in another and the register too.

    ``bare`` bits of the lowest leave without a register, as well.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        part: int | None = None,
        deep: bool = False,
        enable: bool = True,
        reset: bool = False,
        ordered: bool = False,
        bare: int = 0,
        **register: Any,
    ):
        self.width = width
        self.depth = depth
        self.part = part or width
        self.deep = deep
        self.ordered = ordered
        self.bare = bare
        self.sink = Sink(width, enable=enable, reset=reset, **register)
        addr = (depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(width // self.part),
                "write_addr": In(addr),
                "write_data": In(width),
                "read_en": In(1),
                "read_addr": In(addr),
                "enable": In(1),
                "clear": In(1),
                "held": Out(width),
                "copy": Out(self.sink.again),
                "now": Out(bare),
            }
        )

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        if self.deep:
            ram = SplitRam(self.width, self.depth, part=self.part)
        else:
            ram = Ram(self.width, self.depth, part=self.part, ordered=self.ordered)
        m.submodules.ram, sink = ram, self.sink
        for name in ("write_en", "write_addr", "write_data", "read_en", "read_addr"):
            m.d.comb += getattr(ram, name).eq(getattr(self, name))
        m.submodules.sink = sink
        m.d.comb += [
            sink.word.eq(ram.read_data),
            sink.enable.eq(self.enable),
            sink.clear.eq(self.clear),
            self.held.eq(sink.held),
            self.copy.eq(sink.copy),
            self.now.eq(ram.read_data[: self.bare]),
        ]
        return m


def record(unit: Held, cycles: int, seed: int) -> dict[str, list[dict[str, int]]]:
    """Return random inputs of a unit and what it makes; no word is read as it is written."""
    random = np.random.default_rng(seed)
    addresses = random.choice(unit.depth, min(6, unit.depth), replace=False).tolist()
    inputs, outputs = [], []
    seen = [name for name in ("held", "copy", "now") if len(getattr(unit, name))]

    async def bench(ctx: Any) -> None:
        for _ in range(cycles):
            write_addr, read_addr = random.choice(addresses, 2, replace=False).tolist()
            drive = {
                "write_en": int(random.integers(1 << len(unit.write_en))),
                "write_addr": write_addr,
                "write_data": int.from_bytes(random.bytes(20), "little") % (1 << unit.width),
                "read_en": int(random.random() < 0.7),
                "read_addr": read_addr,
                "enable": int(random.integers(2)),
                "clear": int(random.random() < 0.2),
            }
            for name, value in drive.items():
                ctx.set(getattr(unit, name), value)
            inputs.append(drive)
            outputs.append({name: ctx.get(getattr(unit, name)) for name in seen})
            await ctx.tick()

    run_bench(unit, bench)
    return {"inputs": inputs, "outputs": outputs}
