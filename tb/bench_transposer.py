"""Bench of ``hdl.matrix.transposer.Transposer``: blocks go through at a row and a column a cycle.

Parameters: ``size``, ``width``, ``blocks``, and ``stall``, the probability that a row is not
written, or a column not read, in a cycle.
"""

from typing import Any

import cocotb
from amaranth.hdl import unsigned
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from tb.bench import pack, parameters, rng, start_clock, unpack


@cocotb.test()
async def rows_become_columns(dut: Any) -> None:
    """Column c of a block is element c of each of its rows, while the other block is written."""
    given = parameters()
    generator = rng()
    size, count = given["size"], given["blocks"]
    vector = data.ArrayLayout(unsigned(given["width"]), size)
    blocks = generator.integers(0, 1 << given["width"], (count, size, size))  # [block, row, column]
    written, read, cycles = 0, 0, 0

    await start_clock(dut)
    while read < count * size:
        ahead = written // size - read // size  # blocks whole and not yet read
        writes = written < count * size and ahead < 2 and generator.random() >= given["stall"]
        whole = (written + writes) // size > read // size
        reads = whole and generator.random() >= given["stall"]
        block, row = divmod(written, size)
        dut.write_en.value = int(writes)
        dut.write_data.value = pack(vector, blocks[block % count, row].tolist())
        dut.write_block.value = block % 2
        if hasattr(dut, "write_row"):
            dut.write_row.value = row
        block, column = divmod(read, size)
        dut.read_block.value = block % 2
        if hasattr(dut, "read_column"):
            dut.read_column.value = column
        written, read, cycles = written + writes, read + reads, cycles + 1
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        if reads:
            assert unpack(vector, int(dut.read_data.value)) == blocks[block, :, column].tolist()
    if not given["stall"]:
        assert cycles == (count + 1) * size - 1
