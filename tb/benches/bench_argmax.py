"""Bench of ``celosia.hdl.functions.argmax.ArgmaxUnit``: random rows in beats, with pauses.

Parameters: ``lanes`` of the unit; ``rows``, the number of rows; ``beats``, the largest number of
beats of a row; ``stall``, the probability in each cycle that the bench sends no beat.
"""

from collections import deque
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.isa import COLUMN_WIDTH
from celosia.hdl.functions.argmax import ArgmaxUnit, largest_layout
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack


def random_row(random: np.random.Generator, length: int) -> NDArray[np.int64]:
    """Return random INT16 elements [length].

    The elements are far apart, or close together, or differ from one common value in at most one
    bit.
    """
    if random.random() < 0.5:
        base = int(random.integers(-32768, 32768))
        return base ^ random.integers(0, 2, length) << random.integers(0, 15, length)
    spread = int(random.choice([1, 2, 100, 32768]))
    row = random.integers(-spread, spread, length) - random.choice([0, 32768])
    return np.clip(row, -32768, 32767)


@cocotb.test()
async def the_first_largest_is_found(dut: Any) -> None:
    """The argmax unit outputs the largest element of a row so far, and its first column.

    A row arrives in beats of several elements. The output is compared in every cycle. A beat
    changes the output ``latency`` cycles after the beat arrives.
    """
    settings, random = parameters(), rng()
    lanes = settings["lanes"]
    layout = data.ArrayLayout(signed(16), lanes)
    latency = ArgmaxUnit(lanes).latency
    await start_clock(dut, rng())
    largest: dict[str, int] | None = None
    due: deque[dict[str, int] | None] = deque([None] * latency)

    async def cycle(elements: Any, *, valid: bool, fresh: bool) -> None:
        dut.valid.value, dut.fresh.value = int(valid), int(fresh)
        dut.i.value = pack(layout, list(elements))
        due.append(largest)
        await FallingEdge(dut.clk)
        if (wanted := due.popleft()) is not None:
            assert unpack(largest_layout(), int(dut.o.value)) == wanted
        await RisingEdge(dut.clk)

    for _ in range(settings["rows"]):
        beats = 1 if random.random() < 0.5 else int(random.integers(1, settings["beats"] + 1))
        counts = random.integers(1, lanes + 1, beats)
        row = random_row(random, counts.sum())
        first = int(random.integers((1 << COLUMN_WIDTH) - len(row) + 1))
        column = 0
        for beat, count in enumerate(counts.tolist()):
            while random.random() < settings["stall"]:
                await cycle([32767] * lanes, valid=False, fresh=True)
            elements = random.integers(-32768, 32768, lanes)
            elements[:count] = row[column : column + count]
            dut.count.value, dut.column.value = count, first + column
            column += count
            place = int(np.argmax(row[:column]))
            largest = {"value": int(row[place]), "column": first + place}
            await cycle(elements.tolist(), valid=True, fresh=beat == 0)
    for _ in range(latency):
        await cycle([32767] * lanes, valid=False, fresh=True)
