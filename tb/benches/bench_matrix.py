"""Bench of ``celosia.hdl.matrix.matrix.MatrixEngine``: commands on a scratchpad of random bytes.

At each command's ``done`` the accumulators must contain the golden model's sums. The engine's
status outputs, counters and cycles are checked, too.
"""

# Parameters, all but ``config`` optional:
# - config: the configuration's fields that differ from the preset ``small``
# - products: the commands, each (opcode, m, k, n, flags[, slot, line]); see Jobs.add
# - random: the number of random commands
# - stall: the probability in each cycle that a scratchpad port pauses; the port ``b``, which reads
#   weights, pauses only before the first line of a tile
# - alone: if true, each command waits for the end of the previous command
# - report: the path of a JSON file. ``cycles`` has the cycles from the acceptance of the first
#   command (if ``alone``, of the same command) to each ``done``; ``working`` has the lengths of the
#   intervals in which the output ``working`` is 1

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import RING_SLOTS, Opcode
from celosia.arch.latency import dispatch_cycles
from celosia.arch.presets import PRESETS
from celosia.hdl.matrix.array import sum_layout
from celosia.tb.benches.common import StreamDriver, parameters, rng, start_clock
from celosia.tb.benches.matrix_jobs import Jobs, window
from celosia.tb.machine.packing import unpack

PRODUCTS = 8
"""Products whose cycles are counted, alone and not."""


async def _answer(dut: Any, name: str, jobs: Jobs, config: Config, stall: float) -> None:
    """Answer the requests of a scratchpad port after a fixed time.

    Once a tile's first line was accepted on ``b``, the others are accepted without a wait.
    """
    generator = rng()
    request, data = getattr(dut, f"{name}__request__valid"), getattr(dut, f"{name}__data")
    ready, addr = getattr(dut, f"{name}__request__ready"), getattr(dut, f"{name}__request__payload")
    valid = getattr(dut, f"{name}__valid")
    line = config.line_bytes
    beyond = generator.integers(0, 256, line).astype(np.uint8)
    sp = np.concatenate([jobs.sp, beyond])
    latency = config.weight_latency if name == "b" else config.sram_latency
    pending: list[int | None] = [None] * (latency - 1)
    tiles = iter(jobs.lines if name == "b" else ())
    left, waits = 0, True
    while True:
        ready.value = int(left > 0 or generator.random() >= stall)
        await FallingEdge(dut.clk)
        accepted = int(request.value) and int(ready.value)
        if name == "b":
            assert int(request.value) or not left or not waits
            if accepted and not left:
                left, waits = next(tiles)
            left -= bool(accepted)
        pending.append(int(addr.value) if accepted else None)
        await RisingEdge(dut.clk)
        now = pending.pop(0)
        valid.value = int(now is not None)
        content = sp[now : now + line] if now is not None else beyond
        data.value = int.from_bytes(content.tobytes(), "little")


class _Sums:
    """The accumulators, from the rows accumulated up to the end of each command."""

    def __init__(self, config: Config, jobs: Jobs):
        self._jobs = jobs
        self._acc = np.zeros((config.accumulators.depth, config.array.cols), np.int64)
        self._half = 1 << (config.accumulators.width - 1)
        self._commands = self._rows = 0

    def check(self, rows: list[tuple[int, int, list[int]]]) -> None:
        """Compare the sums of the next command; ``rows`` are (cycle, address, values)."""
        end = self._jobs.events[self._commands]
        for _, addr, row in rows[self._rows : end]:
            wrapped = self._acc[addr] + row + self._half
            self._acc[addr] = wrapped % (2 * self._half) - self._half
        wanted = self._jobs.after[self._commands]
        np.testing.assert_array_equal(self._acc, wanted, f"command {self._commands}")
        self._commands, self._rows = self._commands + 1, end


@dataclass
class _Found:
    """Cycles of a run at which commands are accepted and done, and vectors sent."""

    starts: list[int] = field(default_factory=list)
    dones: list[int] = field(default_factory=list)
    sends: list[int] = field(default_factory=list)
    spells: list[int] = field(default_factory=lambda: [0])
    """Cycles of each spell of ``working``; the last one has not begun."""


def _check_status(dut: Any, config: Config, record: _Found, jobs: Jobs, cycle: int) -> None:
    """Compare the engine's status outputs with the commands accepted and done before."""
    offered = bool(int(dut.i__valid.value))
    busy = offered or len(record.starts) > len(record.dones)
    assert int(dut.status__busy.value) == busy
    asked, refused = (
        [int(getattr(dut, f"{port}__request__{name}").value) for port in "ab"]
        for name in ("valid", "ready")
    )
    waits = [valid and not ready for valid, ready in zip(asked, refused, strict=True)]
    assert int(dut.status__stall.value) == any(waits)
    assert waits[0] <= int(dut.refused.value) <= any(waits)
    due = jobs.events[len(record.starts) - 1] if record.starts else 0
    assert len(record.sends) >= due or int(dut.filling.value)
    assert busy or not int(dut.filling.value)
    assert int(dut.filling.value) or not record.starts or record.starts[-1] != cycle - 1
    if int(dut.working.value):
        assert busy or (record.dones and cycle - record.dones[-1] <= dispatch_cycles(config))
        record.spells[-1] += 1
    elif record.spells[-1]:
        record.spells.append(0)


async def _run(dut: Any, jobs: Jobs, config: Config, stall: float, *, alone: bool) -> _Found:
    """Run commands, each ``alone`` or not, and check every sum."""
    await start_clock(dut)
    answers = [cocotb.start_soon(_answer(dut, name, jobs, config, stall)) for name in ("a", "b")]
    driver = StreamDriver(dut, "i", rng(), stall=0.8 if stall else 0.0)
    record = _Found()
    dones = record.dones

    async def send() -> None:
        for sent, payload in enumerate(jobs.payloads):
            while alone and len(dones) < sent:
                await RisingEdge(dut.clk)
            await driver.send([payload])

    cocotb.start_soon(send())

    layout = sum_layout(config)
    scales = data.ArrayLayout(8, config.array.cols)
    rows: list[tuple[int, int, list[int]]] = []
    sums = _Sums(config, jobs)
    totals = {"macs": 0, "gated": 0}
    cycle = quiet = 0
    while quiet < 50:
        await FallingEdge(dut.clk)
        _check_status(dut, config, record, jobs, cycle)
        if int(dut.i__valid.value) and int(dut.i__ready.value):
            record.starts.append(cycle)
        if int(dut.sends.value):
            record.sends.append(cycle)
        if int(dut.accumulate__valid.value):
            assert int(dut.working.value)
            row = unpack(layout, int(dut.accumulate__data.value))
            if config.slot_scales and int(dut.accumulate__scaled.value):
                each = unpack(scales, int(dut.accumulate__scales.value))
                row = [total * scale for total, scale in zip(row, each, strict=True)]
            rows.append((cycle, int(dut.accumulate__addr.value), row))
        for name in totals:
            if hasattr(dut, name):
                totals[name] += int(getattr(dut, name).value)
        if int(dut.status__done.value):
            assert int(dut.status__push.value) == jobs.pushes[len(dones)]
            needed = jobs.events[len(dones)]
            assert len(rows) >= needed
            asked = cycle + dispatch_cycles(config)
            assert needed == 0 or rows[needed - 1][0] + config.acc_settle <= asked
            dones.append(cycle)
            sums.check(rows)
        quiet = quiet + 1 if len(dones) == len(jobs.pushes) else 0
        assert cycle < 1_000_000
        cycle += 1
    for answer in answers:
        answer.cancel()
    assert len(rows) == len(record.sends) == (jobs.events[-1] if jobs.events else 0)
    assert totals["macs"] == jobs.macs
    if config.array.operand_gating:
        assert totals["gated"] == jobs.gated
    return record


def _config() -> Config:
    return PRESETS["small"].replace(**{"lanes": 1} | parameters()["config"])


@cocotb.test()
async def sums_are_exact(dut: Any) -> None:
    """At each command's ``done`` the accumulators contain the golden model's sums."""
    settings, config = parameters(), _config()
    jobs = Jobs(config, rng())
    for name, m, k, n, flags, *where in settings.get("products", []):
        slot, line = where or (RING_SLOTS, 0)
        jobs.add(Opcode[name], m, k, n, set(flags), slot, line)
    for _ in range(settings.get("random", 0)):
        jobs.add_random()
    alone = bool(settings.get("alone"))
    record = await _run(dut, jobs, config, settings.get("stall", 0.0), alone=alone)
    if "report" in settings:
        starts = record.starts if alone else record.starts[:1] * len(record.dones)
        pairs_of = zip(starts, record.dones, strict=True)
        cycles = [done - start + 1 for start, done in pairs_of]
        report = {"cycles": cycles, "working": record.spells[:-1]}
        Path(settings["report"]).write_text(json.dumps(report), encoding="utf-8")


def _plain() -> bool:
    """Return whether each vector passes once, and weights are INT8 in the scratchpad."""
    config = _config()
    others = (
        config.array.wide,
        config.packed_cache,
        config.packed_slots,
        config.vector_passes > 1,
    )
    return not (config.formats or any(others))


if "random" in parameters() and _plain():

    @cocotb.test()
    async def products_take_the_stated_cycles(dut: Any) -> None:
        """A single product takes the cycles in the engine's docstring.

        Between consecutive products the array has no idle cycle.
        """
        config, generator = _config(), rng()
        room = config.array.weight_depth - RING_SLOTS
        largest = max(config.array.rows, config.array.cols)
        for alone in (True, False):
            jobs, windows = Jobs(config, generator), []
            if room:
                jobs.add(
                    Opcode.PRELOAD,
                    0,
                    room * config.array.rows,
                    config.array.cols,
                    set(),
                    RING_SLOTS,
                )
            for _ in range(PRODUCTS):
                kt, nt = (int(generator.integers(1, 4)) for _ in range(2))
                m = int(generator.integers(largest, 6 * largest))
                flags = (
                    {"b_transpose"}
                    if generator.random() < 0.5 * config.array.b_transpose
                    else set()
                )
                if kt * nt <= room and generator.random() < 0.5:
                    flags = {"resident"}
                    m = m if alone else int(generator.integers(1, m + 1))
                m = min(m, config.accumulators.depth // nt - 2)
                shape = m, kt * config.array.rows, nt * config.array.cols
                jobs.add(Opcode.MATMUL, *shape, flags, RING_SLOTS)
                windows.append(window(config, *shape, *flags))
            record = await _run(dut, jobs, config, 0.0, alone=alone)
            if alone:
                begun = zip(record.starts, record.dones, strict=True)
                # With registers products begin one cycle later, and are reported one cycle sooner.
                spent = [done - start + 1 for start, done in begun]
                assert spent[bool(room) :] == windows
            else:
                assert np.all(np.diff(record.sends) == 1)
