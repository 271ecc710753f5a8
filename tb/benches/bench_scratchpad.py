"""Bench of the scratchpad: all ports make random requests at once.

Parameters: ``config``, the configuration's fields that differ from the preset ``small``;
``readers`` and ``writers``, the names of the ports, the highest priority first; ``cycles``, the
number of cycles.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.hdl.engines import written_bytes
from celosia.hdl.ports import write_layout
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack


@dataclass
class _Port:
    """A port with its current request, if any, and the answers that a reader expects.

    A ``late`` port's request waits one cycle in ``held`` before it goes to its bank.
    """

    name: str
    write: bool
    late: bool = False
    addr: int | None = None
    held: int | None = None
    data: bytes = b""
    due: deque[tuple[int, list[int | None]] | None] = field(default_factory=deque)
    granted: int = 0


def _offer(port: _Port, config: Config, random: np.random.Generator) -> None:
    """Choose a request: often close to the others, never across the end of a bank."""
    spread = random.choice([4 * config.line_bytes, config.scratchpad.bytes])
    base = int(random.integers(config.scratchpad.banks)) * config.bank_bytes
    addr = (base + int(random.integers(spread))) % config.scratchpad.bytes
    addr -= addr % config.scratchpad.align
    if port.write:
        room = config.bank_bytes - addr % config.bank_bytes
        room = min(room, written_bytes(config, port.name))
        port.data = random.bytes(int(random.integers(room + 1)))
    port.addr = addr


def _drive(dut: Any, port: _Port, config: Config, random: np.random.Generator) -> None:
    kind = "write" if port.write else "read"
    prefix = f"{kind}_{port.name}__request__"
    getattr(dut, prefix + "valid").value = port.addr is not None
    if port.addr is None:
        return
    if port.write:
        padded = port.data + random.bytes(config.line_bytes - len(port.data))
        payload = {"addr": port.addr, "count": len(port.data), "data": list(padded)}
        getattr(dut, prefix + "payload").value = pack(write_layout(config.access), payload)
    else:
        getattr(dut, prefix + "payload").value = port.addr


@cocotb.test()
async def every_access_finds_its_bytes(dut: Any) -> None:
    """Reads return the bytes last written; a bank accepts one read and one write per cycle.

    If several readers request the same bank in a cycle, the bank accepts the first of them in the
    parameter ``readers``. For writers, the parameter is ``writers``. A read is answered after the
    scratchpad's latency.
    """
    settings, random = parameters(), rng()
    config = PRESETS["small"].replace(**settings["config"])
    memory = bytearray(config.scratchpad.bytes)
    due = [None] * config.sram_latency
    ports = [_Port(name, False, due=deque(due)) for name in settings["readers"]]
    ports[0].late = config.control.registered
    ports += [_Port(name, True) for name in settings["writers"]]
    await start_clock(dut)
    for cycle in range(settings["cycles"]):
        busy = [0.3, 0.7, 1.0][cycle // 50 % 3]
        for port in ports:
            if port.addr is None and random.random() < busy:
                _offer(port, config, random)
            _drive(dut, port, config, random)
        await FallingEdge(dut.clk)
        occupied: set[tuple[bool, int]] = set()
        written = []
        for port in ports:
            kind = "write" if port.write else "read"
            asked = port.held if port.late else port.addr
            place = (port.write, (asked or 0) // config.bank_bytes)
            free = place not in occupied
            if port.addr is not None:
                ready = int(getattr(dut, f"{kind}_{port.name}__request__ready").value)
                assert ready == free, f"cycle {cycle}: {port.name} ready {ready}, bank free {free}"
            if asked is not None:
                occupied.add(place)
            granted = asked if free else None
            if not port.write:
                _check_answer(dut, port, cycle)
                port.due.append(None)
                if granted is not None:
                    end = min(granted + config.line_bytes, (place[1] + 1) * config.bank_bytes)
                    port.due[-1] = (granted, list(memory[granted:end]))
            elif granted is not None:
                written.append((granted, port.data))
            if granted is not None:
                port.granted += 1
            if port.late:
                port.held, port.addr = port.addr, None
            elif granted is not None:
                port.addr = None
        for addr, content in written:
            memory[addr : addr + len(content)] = content
            for port in ports:
                _forget(port, addr, len(content))
        await RisingEdge(dut.clk)
    assert all(port.granted for port in ports)


def _forget(port: _Port, addr: int, count: int) -> None:
    """Expect no value for bytes that are written in the cycle in which they are read."""
    if not port.write and port.due[-1] is not None:
        start, content = port.due[-1]
        known = [
            None if addr <= start + place < addr + count else byte
            for place, byte in enumerate(content)
        ]
        port.due[-1] = (start, known)


def _check_answer(dut: Any, port: _Port, cycle: int) -> None:
    expected = port.due.popleft()
    valid = int(getattr(dut, f"read_{port.name}__valid").value)
    assert valid == (expected is not None), f"cycle {cycle}: {port.name} valid {valid}"
    if expected is not None:
        addr, content = expected
        got = int(getattr(dut, f"read_{port.name}__data").value).to_bytes(64, "little")
        for place, (byte, content_byte) in enumerate(zip(content, got, strict=False)):
            assert byte in (None, content_byte), (
                f"cycle {cycle}: {port.name} read {addr + place:#x}"
            )
