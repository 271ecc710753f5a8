"""Bench of ``celosia.hdl.vector.front_ends``: random commands with random stalls on each stream.

A front end executes the first part of a MAP, SOFTMAX or NORM command. It computes numbers from the
command's input elements and outputs them on the stream ``o`` to the vector engine's back end.
Parameters: ``config``, every field of the configuration; ``commands``, the number of commands;
``stall``, the probability of a stall on each stream in each cycle.
"""

from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import Event, FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.isa import FACTOR_SHIFT, Engine
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.ports import command_layout
from celosia.hdl.vector.beats import beat_layout, value_layout
from celosia.hdl.vector.decode import flag_layout, opcode_layout
from celosia.sim.norm import normalize, row_factors
from celosia.sim.softmax import row_weights, softmax
from celosia.tb.benches.bench_addnorm import beats_of, masks_of, random_rows
from celosia.tb.benches.common import (
    StreamDriver,
    StreamMonitor,
    noise,
    parameters,
    rng,
    start_clock,
)
from celosia.tb.machine.packing import pack, unpack

Ints = NDArray[np.int64]
COMMAND = command_layout(Engine.VECTOR)
MOST_ROWS, MOST_MATRICES = 7, 4
FARTHEST = 1 << 14
"""Largest random step from row to row of a softmax's first and last column."""
POWERS = tuple(1 << bit for bit in range(3, 18))
"""Further steps, each a power of two: the numbers of two rows' columns differ in one bit."""
FACTOR_CYCLES = 60
"""Most cycles from a row's last value to its factor."""


@dataclass
class Work:
    """Test case of the front ends: a random command, or SOFTMAX commands that overlap in time.

    ``fields`` has a dictionary for each command, from field name to value. Fields that the
    dictionary lacks are random. ``beats`` has a list for each command: its input beats. ``second``
    lists the beats of a NORM's second input, the stream ``r``, which the NORM adds to its first
    input.

    ``expected`` lists the expected output beats of all commands, as pairs (values, ``keep``).
    ``values`` has a number for each lane, or None if the lane's output is not compared. ``keep`` is
    a mask with a bit for each lane. If the bit is 0, the back end writes the zero point in place of
    the lane's result. ``sums`` lists the expected beats of the output stream ``o_sum``; a beat is a
    list of sums.

    ``factors`` lists the expected row factors, as triples (index, mantissa, right shift). The index
    is the place in the factor memory where a SOFTMAX stores the factor, or None for a NORM.
    """

    opcode: str
    flags: tuple[str, ...] = ()
    fields: list[dict[str, int]] = field(default_factory=list)
    beats: list[list[int]] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    expected: list[tuple[list[int | None], int]] = field(default_factory=list)
    sums: list[list[int]] = field(default_factory=list)
    factors: list[tuple[int | None, int, int]] = field(default_factory=list)


class Drawn:
    """Generator of random commands for a configuration, each with the results of a golden model."""

    def __init__(self, config: Config, random: np.random.Generator):
        self.config, self.random = config, random
        self.layout = beat_layout(config.access)
        self.powers = cycle((power, side) for power in POWERS for side in range(2))

    def draw(self) -> Work:
        """Return a random MAP or NORM, random SOFTMAX commands, or a command of :meth:`others`.

        NORM and SOFTMAX are returned only if the configuration has them.
        """
        kinds = [self.map, *[self.softmax] * bool(self.config.softmax)]
        kinds += [self.norm] * bool(self.config.vector.norm) + [self.others]
        return kinds[self.random.integers(len(kinds))]()

    def others(self) -> Work:
        """Return a random vector engine command that is not a MAP, SOFTMAX or NORM.

        No front end executes such a command. Therefore no stream may transfer a beat during it.
        """
        fronts = {"map", "softmax", "norm"}
        names = sorted(set(opcode_layout().members) - fronts)
        return Work(str(self.random.choice(names)), self._flags("wide_in", "add", "diagonal"))

    def map(self) -> Work:
        """Return a random MAP command with 8-bit or 16-bit input elements."""
        lanes, random = self.config.vector.lanes, self.random
        work = Work("map", self._flags("wide_in", "rms", "diagonal"))
        bytes_each = 2 if "wide_in" in work.flags else 1
        zero = int(random.integers(-128, 128))
        work.fields.append({"i_zero": zero})
        work.beats.append([])
        low = -(1 << 8 * bytes_each - 1)
        for _ in range(int(random.integers(1, 20))):
            row = random.integers(low, -low, lanes)
            work.beats[0].append(self._beat(row, lanes, False, bytes_each))
            # A lane at the end of a beat of fewer lanes than SOFTMAX has no element.
            spare: list[int | None] = [None] * (self.config.beat_lanes - lanes)
            keep = (1 << self.config.beat_lanes) - 1
            work.expected.append(([*(row - zero).tolist(), *spare], keep))
        return work

    def softmax(self) -> Work:
        """Return one to ``MOST_MATRICES`` random SOFTMAX commands.

        Each command after the first starts before the previous one has ended.
        """
        random, lanes, factors = self.random, self.config.beat_lanes, self.config.row_factors
        drains = ["drain"] * int(self.config.fused is not None and random.random() < 0.5)
        several = int(random.choice([1, random.integers(1, MOST_MATRICES + 1)]))
        diagonal = [] if several > 1 else list(self._flags("diagonal"))
        work = Work("softmax", (*drains, *diagonal))
        # Far apart, the rows' windows reach all bits of a column's number.
        most = int(random.choice([4, FARTHEST]))
        steps = [int(random.integers(-most, most)) for _ in range(2)]
        power = random.random() < 0.75
        if power:
            distance, side = next(self.powers)
            steps = [0, 0]
            steps[side] = distance * int(random.choice([-1, 1]))
        start_step, limit_step = steps
        place, value = int(random.integers(-4, 20)), int(random.integers(-(1 << 27), 1 << 27))
        for _ in range(several):
            n = int(random.integers(1, self.config.vector.longest_row + 1))
            n = min(n, int(random.choice([2 * lanes, 6 * lanes])))
            if power:
                # The middle one of three rows has columns inside its window, and some outside.
                m, n = 3, max(n, 2)
                first = int(random.integers(n))
                start = first - start_step
                limit = int(random.integers(first + 1, n + (first > 0))) - limit_step
            else:
                m = int(random.integers(1, MOST_ROWS + 1))
                start = int(random.integers(-6, n)) - start_step * int(random.integers(m))
                limit = int(random.integers(1, n + 6)) - limit_step * int(random.integers(m))
            number = int(random.integers(factors)) if factors else 0
            work.fields.append(
                {
                    **{"start_step": start_step, "limit_step": limit_step},
                    **{"start": start, "limit": limit, "n": n, "params": number << FACTOR_SHIFT},
                    **{"diagonal": place, "diagonal_value": value},
                }
            )
            span = int(random.choice([8, 500, 32768]))
            scores = random.integers(-span, span, (m, n))
            row, column = np.ogrid[:m, :n]
            keep = (column >= start + start_step * row) & (column < limit + limit_step * row)
            p, mantissa, right = (
                row_weights(scores, keep) if factors else (softmax(scores, keep), None, None)
            )
            work.beats.append(self._rows(scores, lanes))
            if mantissa is not None and right is not None:
                work.factors += [
                    ((number + index) % factors, int(mantissa[index, 0]), int(right[index, 0]))
                    for index in range(m)
                ]
            padding = -n % lanes
            wide = np.pad(p, ((0, 0), (0, padding)))
            kept = np.pad(keep, ((0, 0), (0, padding)))
            if diagonal:
                columns = np.arange(n + padding)
                wide = wide + value * (columns == place + np.arange(m)[:, None])
            values, masks = wide.reshape(-1, lanes), kept.reshape(-1, lanes)
            bits = (masks << np.arange(lanes)).sum(axis=1)
            work.expected += list(zip(values.tolist(), bits.tolist(), strict=True))
        return work

    def norm(self) -> Work:
        """Return a random NORM command.

        If it has the flag ``add``, it adds the rows of two inputs and normalizes the sums;
        otherwise it normalizes the rows of one input.
        """
        random, lanes = self.random, self.config.vector.lanes
        fused = ["drain"] * int(self.config.fused is not None and random.random() < 0.5)
        # Row factors are those of RMS norms only.
        rms = ["rms"] * int(bool(self.config.row_factors) or random.random() < 0.5)
        work = Work("norm", (*fused, *rms, *self._flags("add")))
        n = int(random.choice([1, random.integers(1, self.config.vector.longest_row + 1)]))
        m = int(random.integers(1, 2 + 20 * lanes // n))
        eps = int(random.integers(1 << 56)) >> int(random.integers(57))
        low, high = eps & (1 << 28) - 1, eps >> 28
        work.fields.append({"n": n, "eps_low": low, "eps_high": high})
        x, r = random_rows(random, m, n), random_rows(random, m, n)
        work.beats.append(self._rows(x, lanes))
        second = r if "add" in work.flags else None
        if second is not None:
            work.second = self._rows(second, lanes)
        if self.config.row_factors:
            mantissa, right, s = row_factors(x, second, eps=eps)
            value = s.astype(np.int64)
            work.factors = [
                (None, int(a), int(b) if a else 0)
                for a, b in zip(mantissa[:, 0], right[:, 0], strict=True)
            ]
        else:
            normalized, s = normalize(x, second, rms=bool(rms), eps=eps)
            value = normalized.astype(np.int64)
        masks, _ = masks_of(m, n, lanes)
        spare: list[int | None] = [None] * (self.config.beat_lanes - lanes)
        for values, sums, mask in zip(
            beats_of(value, lanes), beats_of(s.astype(np.int64), lanes), masks, strict=True
        ):
            kept = [mask >> lane & 1 for lane in range(lanes)]
            lane_values = [a if b else None for a, b in zip(values.tolist(), kept, strict=True)]
            work.expected.append(([*lane_values, *spare], mask))
            work.sums.append([a * b for a, b in zip(sums.tolist(), kept, strict=True)])
        return work

    def _flags(self, *names: str) -> tuple[str, ...]:
        """Return a random part of flags that the machine has."""
        have = flag_layout().members
        return tuple(name for name in names if name in have and self.random.random() < 0.5)

    def _rows(self, rows: Ints, lanes: int) -> list[int]:
        """Return the beats of rows of 16-bit elements."""
        masks, lasts = masks_of(*rows.shape, lanes)
        beats = beats_of(rows, lanes)
        counts = [mask.bit_count() for mask in masks]
        return [
            self._beat(beat, count, bool(last), 2, index == len(beats) - 1)
            for index, (beat, count, last) in enumerate(zip(beats, counts, lasts, strict=True))
        ]

    def _beat(self, row: Ints, count: int, row_last: bool, width: int, last: bool = False) -> int:
        """Return a beat's bits; bytes after its elements are random."""
        bytes_ = self.random.integers(0, 256, self.config.line_bytes).astype(np.uint8)
        content = row.astype(f"<i{width}").tobytes()
        bytes_[: len(content)] = np.frombuffer(content, np.uint8)
        fields = {"count": count, "row_last": int(row_last), "last": int(last)}
        tile_last = int(self.random.integers(2))
        return pack(self.layout, {"data": bytes_.tolist(), "tile_last": tile_last, **fields})


def shifted(factor: dict[str, int]) -> tuple[int, int]:
    """Return the pair (mantissa, right shift) of a row factor, from a dictionary of its fields.

    The shift is 0 if the mantissa is 0, since every shift then means the same factor.
    """
    return factor["mantissa"], factor["right"] if factor["mantissa"] else 0


class Fronts:
    """Driver of the vector engine's front ends, which runs one command after another."""

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
        """Run the command or the SOFTMAX commands of ``work``, and compare the results.

        Values, sums and row factors must equal those in ``work``. If no front end executes the
        command, no stream may transfer a beat.
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
    """Values, sums and row factors (which normalize rows) equal those of the golden models."""
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut, rng())
    drawn = Drawn(config, random)
    fronts = Fronts(dut, config, random, settings["stall"])
    for _ in range(settings["commands"]):
        await fronts.run(drawn.draw())
