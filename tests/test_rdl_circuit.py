"""The registers' SystemRDL beside the circuit, bit by bit: a model is made of it alone."""

from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.arch.registers import CONTROL_START, REGISTER_MAP
from celosia.hdl.control.counters import Counters
from celosia.hdl.engines import host_registers
from tests.support.simulation import run_bench

CONFIG = PRESETS["tiny"].replace(program_depth=600, argmax=True)
CYCLES = 400
"""Cycles of counting, more than the counters need to be stored."""


class Model:
    """Registers as software sees them by their description in SystemRDL alone."""

    def __init__(self, folder: Path):
        pytest.importorskip("systemrdl", reason="PeakRDL is not installed")
        from celosia.generators.export.registers import compiled

        self.fields: dict[int, list] = {addr: [] for addr in range(256)}
        self.state: dict[str, int] = {}
        self.drawn: dict[int, int] = dict.fromkeys(range(256), 0)
        """Bits that the circuit changes at any time, by register."""
        for register in compiled(folder, CONFIG.control.program_depth).top.registers():
            addr = register.absolute_address // 4
            for field in register.fields():
                self.fields[addr].append(field)
                self.state[field.get_path()] = field.get_property("reset") or 0
                changes = field.is_hw_writable and not field.is_sw_writable
                if changes and field.is_sw_readable:
                    self.drawn[addr] |= ((1 << field.width) - 1) << field.low

    def write(self, addr: int, value: int) -> None:
        """Write a register; bits without a field are not stored."""
        for field in self.fields[addr]:
            part = value >> field.low & ((1 << field.width) - 1)
            path = field.get_path()
            if not field.is_sw_writable or field.get_property("singlepulse"):
                continue
            woclr = str(field.get_property("onwrite")).endswith("woclr")
            self.state[path] = self.state[path] & ~part if woclr else part

    def read(self, addr: int) -> int:
        """Read a register; fields that the circuit changes at any time are 0 here."""
        shown = [field for field in self.fields[addr] if field.is_sw_readable]
        value = sum(self.state[field.get_path()] << field.low for field in shown)
        return value & ~self.drawn[addr]

    def value(self, name: str) -> int:
        """Return the value that a register of software has for the circuit."""
        (field,) = self.fields[REGISTER_MAP[name].addr]
        return self.state[field.get_path()]


def test_the_description_is_the_circuit_bit_by_bit(tmp_path: Path) -> None:
    model, rng = Model(tmp_path), np.random.default_rng(5)
    unit = host_registers(CONFIG, {"MACS": 5})
    wrong: list[tuple] = []

    async def bench(ctx):
        async def write(addr, value):
            ctx.set(unit.host.addr, addr)
            ctx.set(unit.host.write_data, value)
            ctx.set(unit.host.write_en, 1)
            held = unit.register_data, unit.register_en, unit.register_index
            told = [ctx.get(signal) for signal in held]
            await ctx.tick()
            ctx.set(unit.host.write_en, 0)
            model.write(addr, value)
            if told[1] and told[2]:  # there is no register 0
                assert model.value(f"R{told[2]}") == told[0] % (1 << 28)

        async def read(addr):
            ctx.set(unit.host.addr, addr)
            await ctx.tick()
            return ctx.get(unit.host.read_data)

        async def compare(addr, *context):
            value = await read(addr)
            if value & ~model.drawn[addr] != model.read(addr):
                wrong.append((hex(addr), hex(value), hex(model.read(addr)), *context))

        ctx.set(unit.recovered, 1)
        ctx.set(unit.largest, {"value": -1, "column": 5})
        await ctx.tick().repeat(70)
        # What is there behind a reset, mapped and unmapped.
        for addr in range(256):
            await compare(addr, "reset")
        # Every bit of every register that software writes, by itself, all, none, and random ones.
        control = REGISTER_MAP["CONTROL"].addr
        writable = [addr for addr, fields in model.fields.items() if fields and addr != control]
        for addr in writable:
            software = any(field.is_sw_writable for field in model.fields[addr])
            single = [1 << bit for bit in range(32)] if software else []
            for value in (*single, (1 << 32) - 1, *map(int, rng.integers(1 << 32, size=2)), 0):
                await write(addr, value)
                await compare(addr, "written", hex(value))
                assert ctx.get(unit.pc) == model.value("PC")
        # Where nothing is, writing changes nothing.
        for addr in (addr for addr, fields in model.fields.items() if not fields):
            await write(addr, (1 << 32) - 1)
        for addr in range(256):
            await compare(addr, "behind writes to no register")
        # A pulse is one cycle, and what was written is not read back.
        pc = int(rng.integers(CONFIG.control.program_depth))
        await write(REGISTER_MAP["PC"].addr, pc)
        ctx.set(unit.busy, 1)
        for name in unit.widths:
            ctx.set(getattr(unit, f"count_{name.lower()}"), 1)
        await write(control, CONTROL_START)
        pulses = 0
        for _ in range(8):
            pulses += ctx.get(unit.start)
            assert await read(control) == 0
        assert pulses == 1
        assert all(field.get_property("singlepulse") for field in model.fields[control])
        await ctx.tick().repeat(CYCLES)
        assert await read(REGISTER_MAP["STATUS"].addr) & 1
        ctx.set(unit.busy, 0)
        for name in unit.widths:
            ctx.set(getattr(unit, f"count_{name.lower()}"), 0)
        await ctx.tick().repeat(80)
        # The circuit sets INTERRUPT, where 0 changes nothing and 1 takes back its own bit alone.
        interrupt = REGISTER_MAP["INTERRUPT"].addr
        for field in model.fields[interrupt]:
            model.state[field.get_path()] = int(field.inst_name == "DONE" and field.is_hw_writable)
        for value in (0, 2, 0xFFFF_FFFC, 1):
            await compare(interrupt, "before", value)
            await write(interrupt, value)
            await compare(interrupt, "written", value)
        # What the circuit changes has changed, and software has written none of it.
        counters = [f"{name}_LOW" for name in unit.widths]
        for name in counters:
            addr = REGISTER_MAP[name].addr
            width = sum(field.width for part in (addr, addr + 1) for field in model.fields[part])
            assert width == len(Counters({"cycles": 1}, [0]).value)
        for name in ("ARGMAX", "ARGMAX_VALUE", *counters):
            addr = REGISTER_MAP[name].addr
            before = await read(addr)
            assert model.drawn[addr] & before == before != 0, name
            await write(addr, 0)
            assert await read(addr) == before

    run_bench(unit, bench)
    assert wrong == []
