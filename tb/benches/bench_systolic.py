"""Bench of ``SystolicArray`` and ``TreeArray`` with random activation vectors and weights."""

# Parameters:
# - config: the configuration's fields that differ from the preset ``small``
# - cycles: the number of cycles in which the bench may send vectors and weights
# - latency: the expected number of cycles from an activation vector to its sums
# - rate: the probability in each cycle of a vector, and also of a line of weights, if allowed

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.hdl.matrix.array import (
    activation_layout,
    has_column_copies,
    side,
    slot_layout,
    sum_layout,
    weight_layout,
)
from celosia.sim.matmul import multiply, part
from celosia.tb.benches.common import noise, parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack

Ints = NDArray[np.int64]


class Schedule:
    """Random inputs of a systolic or tree array in each cycle, and the sums that it must output.

    Each list has an entry for each cycle. In ``vectors`` and ``lines``, an entry is a dictionary
    from field to value, or None. Inputs follow the rules of ``SystolicArray`` or ``TreeArray``, and
    often come as early as allowed.
    """

    def __init__(self, config: Config, generator: np.random.Generator, cycles: int, rate: float):
        self._config = config
        self._tree = config.array.kind == "tree"
        self._rng = generator
        self._cycles = cycles
        self._rate = rate
        self._slots = np.zeros(
            (config.array.weight_depth, config.array.rows, config.array.cols), np.int64
        )
        self._used = np.full(config.array.weight_depth, -1)
        self._load: tuple[int, bool, Ints] | None = None
        self._steady = False
        self._next = 0
        self._last = 0
        self.vectors: list[dict[str, Any] | None] = []
        """Activation vectors sent."""
        self.lines: list[dict[str, Any] | None] = []
        """Lines (rows or columns of a tile of weights) sent."""
        self.sums: list[Ints | None] = []
        """Sums that the array must later output for the vector sent in this cycle."""
        self.zeros: list[int] = []
        """Zero elements of the vector sent in this cycle."""
        for cycle in range(cycles):
            self._vector(cycle)
            self._line(cycle)

    def _operands(self, *shape: int) -> Ints:
        """Return operands over the whole range, many with one bit, a quarter of them zero."""
        low = self._config.operand_min
        high = self._config.operand_max
        if self._config.array.zero_points:
            low, high = low - high, high - low
        values = self._rng.integers(low, high + 1, shape)
        values[self._rng.random(shape) < 0.2] = low
        single = 1 << self._rng.integers(0, int(high).bit_length(), shape)
        single *= self._rng.choice([-1, 1], shape)
        values = np.where(self._rng.random(shape) < 0.25, single, values)
        values[self._rng.random(shape) < 0.25] = 0
        return values

    def _vector(self, cycle: int) -> None:
        busy = None if self._load is None or self._steady or self._tree else self._load[0]
        slots = [slot for slot in range(self._config.array.weight_depth) if slot != busy]
        if self._rng.random() >= self._rate:
            self.vectors.append(None)
            self.sums.append(None)
            self.zeros.append(0)
            return
        fresh = self._last in slots and self._rng.random() < 0.5
        slot = self._last if fresh else int(self._rng.choice(slots))
        a = self._operands(self._config.array.rows)
        self._used[slot] = cycle
        self.vectors.append({"a": a.tolist(), "slot": self._copies(slot)})
        weights = self._slots[slot]
        if self._config.array.sleep:
            weights = self._asleep(weights)
        if self._config.passes > 1:
            width, place = (
                self._config.array.pass_width,
                int(self._rng.integers(self._config.passes)),
            )
            low, high = (-1, 1) if width == 1 else (-8, 7)
            # Narrow weights are the last part as they are.
            whole = place < 2 and bool(np.all((low <= weights) & (weights <= high)))
            place, last = (0, True) if whole else (place, place + 1 == self._config.passes)
            self.vectors[-1]["part"] = {"place": place, "last": last}
            weights = part(weights, place, last, width)
        self.sums.append(multiply(a[None], weights)[0])
        self.zeros.append(int(np.count_nonzero(a == 0)))

    def _copies(self, slot: int) -> int | list[int]:
        """Return a slot's number, or one copy of it for each column if columns have their own."""
        layout = slot_layout(self._config)
        return slot if isinstance(layout, range) else [slot] * layout.length

    def _asleep(self, weights: Ints) -> Ints:
        """Let the last vector have some columns only; return weights that are 0 in the others.

        A column that shares multipliers with one of these is awake, too, and so has a sum.
        """
        cols = self._config.array.cols
        n = int(self._rng.integers(1, cols + 1))
        self.vectors[-1]["n"] = n
        n += side(self._config, n - 1) == "left"
        return weights * (np.arange(cols) < n)

    def _line(self, cycle: int) -> None:
        self.lines.append(None)
        if self._rng.random() >= self._rate and not (self._load and self._steady):
            return
        rows, cols = self._config.array.rows, self._config.array.cols
        if self._load is None:
            free = [s for s in range(self._config.array.weight_depth) if self._used[s] < cycle]
            if not free:
                return
            column = self._config.array.b_transpose and bool(self._rng.integers(2))
            lines = cols if column else rows
            lines = int(self._rng.choice([1, self._rng.integers(1, lines + 1), lines, lines]))
            tile = self._operands(lines, rows if column else cols)
            if self._config.passes > 1 and self._rng.random() < 0.6:
                tile = tile % 3 - 1 if self._config.array.pass_width == 1 else tile % 16 - 8
            self._load = (int(self._rng.choice(free)), column, tile)
            if self._tree:
                self._next = int(self._rng.integers(lines))
            ends = cycle + len(tile) <= self._cycles and not self._tree
            self._steady = bool(self._rng.integers(2)) and ends
            if self._steady:
                self._last = self._load[0]
        slot, column, tile = self._load
        if self._tree and self._used[slot] == cycle:
            return
        for index in range(self._next, len(tile) if self._steady else self._next + 1):
            if column:
                self._slots[slot, :, index] = tile[index]
            else:
                self._slots[slot, index] = tile[index]
        data = tile[self._next]
        elements = weight_layout(self._config)["data"].shape.length
        line = {
            "slot": self._copies(slot),
            "index": self._next,
            "data": np.resize(data, elements).tolist(),
        }
        line |= {"column": int(column)} if self._config.array.b_transpose else {}
        if far := weight_layout(self._config).members.get("far"):
            own = {name: line[name] for name in ("data", "column") if name in line}
            line["far"] = [own] * far.length
        if has_column_copies(self._config):
            row = 1 << self._next
            line["strobe"] = [
                (2**rows - 1) * (col == self._next) if column else row for col in range(cols)
            ]
        self.lines[-1] = line
        self._next += 1
        if self._next == len(tile):
            self._load, self._next, self._last = None, 0, slot


@cocotb.test()
async def sums_are_exact(dut: Any) -> None:
    """Every sum equals the golden model's sum, ``latency`` cycles after the activation vector."""
    settings = parameters()
    config = PRESETS["small"].replace(**{"lanes": 1} | settings["config"])
    schedule = Schedule(config, rng(), settings["cycles"], settings["rate"])
    latency = settings["latency"]
    layouts = {"i": activation_layout(config), "i_weights": weight_layout(config)}
    queues = {"i": schedule.vectors, "i_weights": schedule.lines}
    sums, random = sum_layout(config), rng()

    still = ["i_weights__valid", *["i_weights__payload"] * has_column_copies(config)]
    await start_clock(dut, rng(), still=still)
    for cycle in range(settings["cycles"] + latency):
        for name, layout in layouts.items():
            entry = queues[name][cycle] if cycle < settings["cycles"] else None
            getattr(dut, f"{name}__valid").value = int(entry is not None)
            payload = getattr(dut, f"{name}__payload")
            # No strobe comes without a line.
            idle = 0 if "strobe" in layout.members else noise(random, payload)
            payload.value = idle if entry is None else pack(layout, entry)
        await FallingEdge(dut.clk)
        expected = schedule.sums[cycle - latency] if cycle >= latency else None
        assert int(dut.o__valid.value) == int(expected is not None), cycle
        if expected is not None:
            assert unpack(sums, int(dut.o__payload.value)) == expected.tolist(), cycle
        if config.array.operand_gating and 2 <= cycle < settings["cycles"] + 2:
            assert int(dut.zeros.value) == schedule.zeros[cycle - 2], cycle
        await RisingEdge(dut.clk)
