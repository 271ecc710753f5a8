"""Bench of ``celosia.hdl.memory.accumulator.AccumulatorMemory`` against a NumPy array.

The bench adds to rows, drains rows (reads them and sets them to zero), and sets rows to zero. The
sums, and the cycles in which they appear, must be right.
"""

# Parameters:
# - config: all fields of the configuration
# - cycles: the number of cycles with random requests
# - rate: the probability of an addition in each cycle, and also of a drain

from collections import deque
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.formats import SCALE_BITS
from celosia.arch.latency import HARDWARE_WIDTH
from celosia.hdl.memory.accumulator import ACC_SETTLE
from celosia.hdl.ports import DrainPort
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack

SPELL = 50
"""Cycles in which the same few rows are used."""


class Rows:
    """Driver of the accumulator memory's ports, and a model that predicts the memory's answers.

    The memory adds values to rows, and drains rows on request: it outputs a row's sums and sets the
    row to zero. In each cycle, the outputs of the drain port are compared with the model's.
    """

    def __init__(self, dut: Any, config: Config, random: np.random.Generator, rate: float):
        self.dut, self.config, self.random, self.rate = dut, config, random, rate
        self._half = 1 << (config.accumulators.width - 1)
        self._acc = np.zeros((config.accumulators.depth, config.array.cols), np.int64)
        self._layout = DrainPort(config.accumulators, config.array.cols).members["data"].shape
        self._due: deque[int | None] = deque([None] * config.acc_latency)
        self._added = dict.fromkeys(range(config.accumulators.depth), -ACC_SETTLE)
        self._drained = dict(self._added)
        self._waiting: int | None = None
        self.cycles = self.answers = self.waited = 0

    def near(self) -> list[int]:
        """Return row addresses that differ in few bits, so that a wrong address bit is detected.

        The addresses are a random one, some that differ from the random one in one bit, and the
        last address of the memory.
        """
        depth = self.config.accumulators.depth
        first = int(self.random.integers(depth))
        others = [first ^ 1 << int(bit) for bit in self.random.integers(0, 12, 6)]
        return [first, *(row for row in others if row < depth), depth - 1]

    async def scrub(self, rows: NDArray[np.int64]) -> None:
        """Set rows to zero through the scrub port, with no requests at other ports meanwhile."""
        self.dut.accumulate__valid.value = 0
        self.dut.drain__request__valid.value = 0
        self._waiting = None
        for _ in range(ACC_SETTLE):
            await self._cycle()
        for row in rows:
            self.dut.scrub.value = 1
            self.dut.scrub_addr.value = int(row)
            await self._cycle()
        self.dut.scrub.value = 0
        for _ in range(ACC_SETTLE):
            await self._cycle()
        self._acc[rows] = 0

    async def use(self, rows: list[int]) -> None:
        """Run one clock cycle with a random addition to a row, and a random drain of a row.

        ``rows`` are the addresses to choose from. Addition and drain (reading a row and setting it
        to zero) each have the probability ``rate``. The memory's rules may forbid one of the two in
        this cycle; then that one is left out.
        """
        adds, drains = (
            int(self.random.choice(rows)) if self.random.random() < self.rate else None
            for _ in range(2)
        )
        await self._use(rows, adds, drains)

    async def use_all(self) -> None:
        """Add random values once to every row of the memory, and then drain half of the rows."""
        rows = [int(row) for row in self.random.permutation(self.config.accumulators.depth)]
        for row in rows:
            await self._use(rows, row, None)
        await self.drain(rows[::2])

    async def drain(self, rows: list[int]) -> None:
        """Read accumulator rows and set them to zero; compare each row with the expected sums.

        ``rows`` lists the addresses of the rows.
        """
        for row in rows:
            await self._use(rows, None, row)
            while self._waiting is not None:
                await self._use(rows, None, None)

    async def _use(self, rows: list[int], adds: int | None, drains: int | None) -> None:
        random, dut, config = self.random, self.dut, self.config
        if self._waiting is None and drains is not None:
            last = max(self._added[drains], self._drained[drains])
            self._waiting = drains if self.cycles - last >= ACC_SETTLE else None
        if adds is not None and (
            adds == self._waiting or self.cycles - self._drained[adds] < ACC_SETTLE
        ):
            adds = None
        values = random.integers(-self._half, self._half, config.array.cols)
        if config.slot_scales and random.random() < 0.5:
            values %= 1 << HARDWARE_WIDTH
            values -= values >> (HARDWARE_WIDTH - 1) << HARDWARE_WIDTH
        dut.accumulate__data.value = pack(self._layout, values.tolist())
        dut.accumulate__valid.value = int(adds is not None)
        dut.accumulate__addr.value = int(random.choice(rows)) if adds is None else adds
        if config.slot_scales:
            values = self._scaled(values)
        hold = self._hold()
        dut.drain__request__valid.value = int(self._waiting is not None)
        dut.drain__request__payload.value = (
            int(random.choice(rows)) if self._waiting is None else self._waiting
        )
        drains = self._waiting
        if drains is not None and (hold or (adds is not None and adds % 2 == drains % 2)):
            self.waited += 1
            drains = None
        answer = None if drains is None else pack(self._layout, self._acc[drains].tolist())
        if drains is not None:
            self._acc[drains], self._drained[drains] = 0, self.cycles
            self._waiting = None
        if adds is not None:
            total = self._acc[adds] + values + self._half
            self._acc[adds], self._added[adds] = total % (2 * self._half) - self._half, self.cycles
        await self._cycle(answer, ready=drains is not None)

    def _scaled(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        scales = self.random.integers(0, 1 << SCALE_BITS, self.config.array.cols)
        fits = np.abs(values).max() < 1 << (HARDWARE_WIDTH - 1)
        scaled = bool(fits and self.random.random() < 0.7)
        layout = data.ArrayLayout(SCALE_BITS, self.config.array.cols)
        self.dut.accumulate__scales.value = pack(layout, scales.tolist())
        self.dut.accumulate__scaled.value = int(scaled)
        return values * scales if scaled else values

    def _hold(self) -> bool:
        hold = bool(self.config.throttle and self.random.random() < 0.3)
        if self.config.throttle:
            self.dut.hold.value = int(hold)
        return hold

    async def _cycle(self, answer: int | None = None, *, ready: bool = False) -> None:
        dut = self.dut
        self._due.append(answer)
        due = self._due.popleft()
        await FallingEdge(dut.clk)
        if int(dut.drain__request__valid.value):
            assert int(dut.drain__request__ready.value) == ready
        assert int(dut.drain__valid.value) == (due is not None)
        if due is not None:
            assert int(dut.drain__data.value) == due
            self.answers += 1
        if self.config.protected("accumulators") != "none":
            assert int(dut.errors.value) == 0
        self.cycles += 1
        await RisingEdge(dut.clk)


@cocotb.test()
async def rows_are_those_that_were_added(dut: Any) -> None:
    """Each drain of a row outputs the sum of all values added since the row was last set to zero.

    A drain reads a row and sets it to zero. The port ``scrub`` sets a row to zero without reading
    it.
    """
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut)
    rows = Rows(dut, config, random, settings["rate"])
    every = random.permutation(config.accumulators.depth)
    for scrubbed in (every, every[::3]):
        await rows.scrub(scrubbed)
        near: list[int] = []
        for cycle in range(settings["cycles"] // 2):
            if cycle % SPELL == 0:
                near = rows.near()
            await rows.use(near)
        await rows.use_all()
    await rows.drain(list(range(config.accumulators.depth)))
    assert rows.answers > settings["cycles"] // 20
    assert rows.waited > 0
