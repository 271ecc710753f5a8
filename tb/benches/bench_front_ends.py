"""Bench of ``celosia.hdl.vector.front_ends``: circuits for the first part of vector commands.

These commands are MAP, SOFTMAX and NORM. Parameters of the bench: ``config``, all fields of the
configuration; ``commands``, the number of random commands; ``stall``, the probability of a stall on
each stream in each cycle.
"""

from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import Event, FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import Engine
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.ports import command_layout
from celosia.hdl.vector.beats import value_layout
from celosia.hdl.vector.decode import flag_layout, opcode_layout
from celosia.tb.benches.common import (
    StreamDriver,
    StreamMonitor,
    noise,
    parameters,
    rng,
    start_clock,
)
from celosia.tb.benches.front_end_commands import Drawn, Work
from celosia.tb.machine.packing import pack, unpack

COMMAND = command_layout(Engine.VECTOR)
FACTOR_CYCLES = 60
"""Most cycles from a row's last value to its factor."""


def shifted(factor: dict[str, int]) -> tuple[int, int]:
    """Return a row factor as a pair of integers: its mantissa and its right shift (bits).

    ``factor`` is a dictionary with the fields ``mantissa`` and ``right``. If the mantissa is 0, the
    shift is returned as 0, since it has no effect.
    """
    return factor["mantissa"], factor["right"] if factor["mantissa"] else 0


class Fronts:
    """Driver of the vector engine's front ends, which runs one command after another.

    A front end is a circuit that executes the first part of a MAP, SOFTMAX or NORM command.
    """

    def __init__(self, dut: Any, config: Config, random: np.random.Generator, stall: float):
        self.dut, self.config, self.random = dut, config, random
        names = ["i", "r", *["drained"] * bool(config.fused)]
        self.drivers = {name: StreamDriver(dut, name, random, stall=stall) for name in names}
        # Sums with row factors leave both streams at the same time.
        both = {"stall": stall, "stable": not config.row_factors}
        self.values = StreamMonitor(dut, "o", random, **both)
        self.sums = StreamMonitor(dut, "o_sum", random, **both) if config.vector.norm else None
        self.factors: list[tuple[int | None, int, int]] = []
        self.used = {"i"}
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        """Collect factors, and let no stream move that is not the command's."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            for name in ({"i", "r", "drained"} & self.drivers.keys()) - self.used:
                if name != "i" or not self.used:
                    assert not int(getattr(dut, f"{name}__ready").value), f"{name} moves"
            if not self.used:
                assert not int(dut.o__valid.value)
            if self.config.row_factors and self.config.vector.norm and int(dut.factor__valid.value):
                factor = unpack(factor_layout(), int(dut.factor__payload.value))
                self.factors.append((None, *shifted(factor)))
            if self.config.row_factors and self.config.softmax and int(dut.sum_factor__valid.value):
                layout = numbered_layout(self.config.row_factors)
                numbered = unpack(layout, int(dut.sum_factor__payload.value))
                self.factors.append((numbered["number"], *shifted(numbered["factor"])))

    async def run(self, work: Work) -> None:
        """Run the test case ``work``, and compare the front ends' outputs with the expected ones.

        The outputs are the values on the stream ``o``, the sums on ``o_sum``, and row factors. If
        ``work`` has no input, the front ends must accept none and output nothing.
        """
        dut, random = self.dut, self.random
        source = "drained" if "drain" in work.flags else "i"
        used = {source, *["r"] * bool(work.second)} if work.beats else set()
        self.used |= used
        self._command(work.fields[0] if work.fields else {})
        dut.start.value = int(work.opcode == "softmax")
        await RisingEdge(dut.clk)
        dut.start.value = 0
        dut.opcode.value = pack(opcode_layout(), {work.opcode: 1})
        dut.flag.value = pack(flag_layout(), dict.fromkeys(work.flags, 1))
        for _ in range(self.config.stages + self.config.lane_stages):
            await RisingEdge(dut.clk)
        self.used = used
        if not work.beats:
            await self._idle()
            return
        started = [Event() for _ in work.beats]
        started[0].set()
        if len(work.beats) > 1:
            cocotb.start_soon(self._starts(work, started))
        cocotb.start_soon(self._inputs(self.drivers[source], work, started))
        if work.second:
            cocotb.start_soon(self.drivers["r"].send(work.second))
        copies = self.sums and cocotb.start_soon(self.sums.receive(len(work.sums)))
        lanes = self.config.beat_lanes

        def check(index: int, bits: int) -> None:
            output, (values, keep) = unpack(value_layout(lanes), bits), work.expected[index]
            if work.opcode != "map":
                assert output["keep"] == keep, (work.opcode, work.flags, index)
            for lane, value in enumerate(values):
                assert value is None or output["value"][lane] == value, (
                    work.opcode,
                    work.flags,
                    index,
                    lane,
                    values,
                    output,
                )

        await self.values.receive(len(work.expected), check)
        if copies:
            layout = data.ArrayLayout(signed(16), self.config.vector.lanes)
            sums = [unpack(layout, bits) for bits in await copies]
            assert sums == work.sums
        for _ in range(FACTOR_CYCLES if work.factors else int(random.integers(3))):
            await RisingEdge(dut.clk)
        assert self.factors == work.factors, (
            f"{work.opcode}: {self.factors}, expected {work.factors}"
        )
        self.factors.clear()

    def _command(self, fields: dict[str, int]) -> None:
        """Set fields of the command; the other ones are random."""
        bits = noise(self.random, self.dut.command)
        for name, value in fields.items():
            member = COMMAND[name]
            bits &= ~(((1 << member.width) - 1) << member.offset)
            bits |= (value & ((1 << member.width) - 1)) << member.offset
        self.dut.command.value = bits

    async def _starts(self, work: Work, started: list[Event]) -> None:
        """Start the further SOFTMAX commands, each after a random time."""
        dut = self.dut
        for fields, event in zip(work.fields[1:], started[1:], strict=True):
            for _ in range(int(self.random.integers(2, 12))):
                await RisingEdge(dut.clk)
            self._command(fields)
            dut.start.value = 1
            await RisingEdge(dut.clk)
            dut.start.value = 0
            event.set()
            owes = 1
            while owes:
                await FallingEdge(dut.clk)
                await RisingEdge(dut.clk)
                await FallingEdge(dut.clk)
                owes = int(dut.owes.value)
                await RisingEdge(dut.clk)

    async def _inputs(self, driver: StreamDriver, work: Work, started: list[Event]) -> None:
        for beats, event in zip(work.beats, started, strict=True):
            await event.wait()
            await driver.send(beats)

    async def _idle(self) -> None:
        """Offer beats in a command in which no front end takes part."""
        dut = self.dut
        for _ in range(int(self.random.integers(1, 6))):
            for name in self.drivers:
                getattr(dut, f"{name}__valid").value = 1
                port = getattr(dut, f"{name}__payload")
                port.value = noise(self.random, port)
            dut.o__ready.value = 1
            await RisingEdge(dut.clk)
        for name in self.drivers:
            getattr(dut, f"{name}__valid").value = 0
        dut.o__ready.value = 0


@cocotb.test()
async def values_sums_and_factors_are_exact(dut: Any) -> None:
    """The outputs of the vector engine's front ends equal the results of the golden models.

    Values are on the stream ``o``. The sums that a NORM command normalizes are on ``o_sum``. Row
    factors, by which later commands scale rows, are compared, too.
    """
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut, rng())
    drawn = Drawn(config, random)
    fronts = Fronts(dut, config, random, settings["stall"])
    for _ in range(settings["commands"]):
        await fronts.run(drawn.draw())
