"""Bench of ``celosia.hdl.sparse.sparse``: each command multiplies rows by a random sparse matrix.

When the output ``done`` ends a command, the accumulators must contain the golden model's sums. The
counts of products and of skipped products are compared, too.
"""

# Parameters:
# - config: the configuration's fields that differ from the preset ``small``
# - lanes: of the unit
# - problems: (m, k, n, sparsity) for each command: [m, k] times weights [k, n], and the share of
#   weights that are zero
# - stall (optional): the probability in each cycle that a scratchpad port refuses a request
# - report (optional): the path of a JSON file. ``cycles`` has, for each command, the number of
#   cycles from the first to the last one in which the output ``working`` is 1

import json
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.isa import Engine, Opcode
from celosia.arch.latency import dispatch_cycles
from celosia.arch.presets import PRESETS
from celosia.arch.sparse import HEADER_BEATS, beat_bytes
from celosia.hdl.matrix.array import sum_layout
from celosia.hdl.ports import command_layout
from celosia.sim.matmul import wrap
from celosia.sim.sparse import decode, encode, multiply
from celosia.tb.benches.common import StreamDriver, parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack

Ints = NDArray[np.int64]


def random_weight(generator: np.random.Generator, k: int, n: int, sparsity: float) -> Ints:
    """Return random INT8 weights [k, n]; ``sparsity`` is the share of weights that are zero."""
    weight = generator.integers(-128, 127, (k, n))
    weight[weight >= 0] += 1  # no zero by chance
    weight.ravel()[generator.permutation(k * n)[: round(sparsity * k * n)]] = 0
    return weight


class Memory:
    """Model of the scratchpad, which answers the sparse unit's reads at the ports ``a`` and ``b``.

    ``bytes`` is the content, at first random. The latency (cycles) is ``sram_latency`` at ``a``,
    and ``weight_latency`` at ``b``. A port refuses a request in each cycle with probability
    ``stall``.
    """

    def __init__(self, dut: Any, config: Config, stall: float):
        self._config, self._stall = config, stall
        self.bytes = rng().integers(0, 256, config.scratchpad.bytes).astype(np.uint8)
        for name, latency in (("a", config.sram_latency), ("b", config.weight_latency)):
            cocotb.start_soon(self._answer(dut, name, latency))

    async def _answer(self, dut: Any, name: str, latency: int) -> None:
        generator, line = rng(), self._config.line_bytes
        beyond = generator.integers(0, 256, line).astype(np.uint8)
        request, ready = (getattr(dut, f"{name}__request__{end}") for end in ("valid", "ready"))
        pending: list[int | None] = [None] * (latency - 1)
        while True:
            ready.value = int(generator.random() >= self._stall)
            await FallingEdge(dut.clk)
            accepted = int(request.value) and int(ready.value)
            addr = int(getattr(dut, f"{name}__request__payload").value)
            pending.append(addr if accepted else None)
            await RisingEdge(dut.clk)
            now = pending.pop(0)
            getattr(dut, f"{name}__valid").value = int(now is not None)
            content = beyond if now is None else np.concatenate([self.bytes, beyond])[now:][:line]
            getattr(dut, f"{name}__data").value = int.from_bytes(content.tobytes(), "little")


@cocotb.test()
async def sums_are_exact(dut: Any) -> None:
    """At a command's ``done`` the accumulators contain the golden model's sums of this command."""
    settings, generator = parameters(), rng()
    config = PRESETS["small"].replace(**settings["config"])
    lanes, cols = settings["lanes"], config.array.cols
    await start_clock(dut)
    memory = Memory(dut, config, settings.get("stall", 0.0))
    driver = StreamDriver(dut, "i", generator)
    cycles = []
    for m, k, n, sparsity in settings["problems"]:
        weight = random_weight(generator, k, n, sparsity)
        code = encode(weight, lanes, cols)
        decoded = decode(code, lanes, cols, k)
        zero = int(generator.integers(-128, 128)) if config.array.zero_points else 0
        a = generator.integers(-128, 128, (m, k))
        stride, acc_stride = k + int(generator.integers(0, 9)), m + int(generator.integers(0, 3))
        gap = int(generator.integers(0, 9))
        room = config.scratchpad.bytes - m * stride - gap - code.size
        place = int(generator.integers(0, room + 1))
        for row in range(m):
            memory.bytes[place + row * stride :][:k] = a[row].astype(np.int8).view(np.uint8)
        b_addr = place + m * stride + gap
        memory.bytes[b_addr : b_addr + code.size] = code
        tiles = -(-n // cols)
        acc_addr = int(generator.integers(0, config.accumulators.depth - tiles * acc_stride + 1))
        operands = {"a_addr": place, "a_stride": stride, "b_addr": b_addr, "acc_addr": acc_addr}
        operands |= {"acc_stride": acc_stride, "m": m, "k": k, "n": n, "a_zero": zero}
        operands |= {"beats": code.size // beat_bytes(lanes) - HEADER_BEATS}
        push = int(generator.integers(0, 1 << len(Engine)))
        header = {"opcode": Opcode.SPARSE, "push": push}
        cocotb.start_soon(driver.send([pack(command_layout(Engine.MATRIX), header | operands)]))
        counts, acc, last = (
            {"macs": 0, "skipped": 0},
            np.zeros((config.accumulators.depth, cols)),
            0,
        )
        cycle = begin = end = 0
        while not int(dut.done.value):
            await FallingEdge(dut.clk)
            cycle += 1
            for name in counts:
                counts[name] += int(getattr(dut, name).value)
            waits = [
                int(getattr(dut, f"{port}__request__valid").value)
                and not int(getattr(dut, f"{port}__request__ready").value)
                for port in ("a", "b")
            ]
            assert int(dut.stall.value) == any(waits)
            if int(dut.working.value):
                begin, end = begin or cycle, cycle
            if int(dut.accumulate__valid.value):
                assert int(dut.working.value)
                row = unpack(sum_layout(config), int(dut.accumulate__data.value))
                acc[int(dut.accumulate__addr.value)] += row
                last = cycle
            assert cycle < 50_000
        assert int(dut.push.value) == push
        assert last + config.acc_settle <= cycle + dispatch_cycles(config)
        expected = np.zeros((config.accumulators.depth, tiles * cols), np.int64)
        sums = wrap(multiply(a - zero, decoded, n), config.accumulators.width)
        for tile in range(tiles):
            part = sums[:, tile * cols : (tile + 1) * cols]
            rows = slice(acc_addr + tile * acc_stride, acc_addr + tile * acc_stride + m)
            expected[rows, : part.shape[1]] += part
        wrapped = wrap(acc.astype(np.int64), config.accumulators.width)
        np.testing.assert_array_equal(wrapped, expected[:, :cols])
        assert counts == {"macs": m * decoded.value.size, "skipped": m * decoded.skipped}
        for _ in range(dispatch_cycles(config)):
            await FallingEdge(dut.clk)
            assert not int(dut.accumulate__valid.value)
        cycles.append(end - begin + 1 + int(dut.working.value))
        for _ in range(config.acc_settle):
            await FallingEdge(dut.clk)
        assert not int(dut.working.value)
        await RisingEdge(dut.clk)
    if "report" in settings:
        Path(settings["report"]).write_text(json.dumps({"cycles": cycles}), encoding="utf-8")
