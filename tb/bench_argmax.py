"""Bench of ``hdl.functions.argmax.ArgmaxUnit``: random rows, in pieces and with pauses.

Parameters: ``lanes`` of the unit; ``rows``, how many; ``beats``, of each row at most; ``stall``,
the probability of a cycle without elements.
"""

from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from arch.isa import COLUMN_WIDTH
from hdl.functions.argmax import ArgmaxUnit, largest_layout
from tb.bench import pack, parameters, rng, start_clock, unpack


@cocotb.test()
async def the_first_largest_is_found(dut: Any) -> None:
    """After every row the largest element and the first column that has it are given."""
    given, random = parameters(), rng()
    lanes = given["lanes"]
    layout = data.ArrayLayout(signed(16), lanes)
    await start_clock(dut, rng())
    for _ in range(given["rows"]):
        spread = int(random.choice([1, 2, 100, 32768]))
        counts = random.integers(1, lanes + 1, int(random.integers(1, given["beats"] + 1)))
        row = np.clip(
            random.integers(-spread, spread, counts.sum()) - random.choice([0, 32768]),
            -32768,
            32767,
        )
        if random.random() < 0.4:  # neighbours that one bit tells apart
            base = int(random.integers(-32768, 32768))
            row = base ^ 1 << random.integers(0, 15, counts.sum())
        first = int(random.integers((1 << COLUMN_WIDTH) - len(row) + 1))
        column = 0
        for beat, count in enumerate(counts.tolist()):
            while random.random() < given["stall"]:
                dut.valid.value = 0
                dut.fresh.value = 1
                dut.i.value = pack(layout, [32767] * lanes)
                await RisingEdge(dut.clk)
            elements = random.integers(-32768, 32768, lanes)
            elements[:count] = row[column : column + count]
            dut.i.value = pack(layout, elements.tolist())
            dut.count.value, dut.column.value = count, first + column
            dut.fresh.value = int(beat == 0)
            dut.valid.value = 1
            column += count
            await RisingEdge(dut.clk)
        dut.valid.value = 0
        for _ in range(ArgmaxUnit(lanes).latency - 1):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        largest = int(np.argmax(row))
        assert unpack(largest_layout(), int(dut.o.value)) == {
            "value": int(row[largest]),
            "column": first + largest,
        }
        await RisingEdge(dut.clk)
