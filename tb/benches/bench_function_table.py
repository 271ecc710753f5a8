"""Bench of tables of activation functions: it writes all tables, then reads them at random.

Parameters: ``lanes`` of the unit; ``slots``, the number of tables; ``operand_width``, the width
(bits) to which a polynomial's value is clamped.
"""

from collections import deque

import cocotb
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.functions import FUNCTIONS, SMOOTH_FUNCTIONS
from celosia.arch.latency import TABLE_LATENCY
from celosia.arch.polynomial import function_polynomial, pack_polynomial
from celosia.hdl.functions.function_table import FunctionTable
from celosia.sim.polynomial import evaluate_table
from celosia.sim.table import lookup
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack

CYCLES = 3000


def tables(slots, random):
    """Return the contents of all tables: a list of ``slots`` arrays, each with 256 bytes.

    The last array has random bytes. Each of the others has the coefficients of a smooth function's
    piecewise polynomial, packed into bytes.
    """
    smooth = [
        pack_polynomial(function_polynomial(FUNCTIONS[name], 4 / 32768, 4 / 128, -7 * place))
        for place, name in enumerate(SMOOTH_FUNCTIONS[: slots - 1])
    ]
    return [*smooth, random.integers(-128, 128, 256)]


def write(dut, place, value):
    """Drive the tables' write port with the address ``place`` and the byte ``value``.

    ``place`` is 256 * table number + index. The port's enable does not change.
    """
    dut.write__slot.value = place >> 8
    dut.write__index.value = place & 255
    dut.write__value.value = value & 0xFF


@cocotb.test()
async def test_functions(dut):
    """Every lane outputs the selected activation function's value for the lane's input ``index``.

    If ``polynomial`` is 0, the value is byte ``index + 128`` of the table with the number ``slot``.
    If ``polynomial`` is 1, the value is that of the table's piecewise polynomial at ``index``.
    """
    settings, random = parameters(), rng()
    lanes, slots, width = (settings[name] for name in ("lanes", "slots", "operand_width"))
    wide, narrow = (data.ArrayLayout(signed(bits), lanes) for bits in (16, 8))
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    held = tables(slots, random)
    await start_clock(dut)
    for place in random.permutation(slots * 256).tolist():
        dut.write__en.value = 1
        write(dut, place, int(held[place >> 8][place & 255]))
        await RisingEdge(dut.clk)
        dut.write__en.value = 0
        # Without ``en`` no entry is written, for any value at the port.
        write(dut, int(random.integers(slots * 256)), int(random.integers(256)))
        if random.random() < 0.3:
            await RisingEdge(dut.clk)
    values = deque([None] * (TABLE_LATENCY - 1))
    results = deque([None] * (FunctionTable.latency - 1))
    shown = [None, None]
    for _ in range(CYCLES):
        slot, en = int(random.integers(slots)), random.random() < 0.8
        polynomial = random.random() < 0.7
        x = random.integers(-(1 << 15), 1 << 15, lanes) >> (0 if polynomial else 8)
        dut.en.value = int(en)
        dut.polynomial.value = int(polynomial)
        dut.slot.value = slot
        dut.index.value = pack(wide, x.tolist())
        await FallingEdge(dut.clk)
        for port, wanted in zip((dut.value, dut.result), shown, strict=True):
            assert wanted is None or unpack(narrow, int(port.value)) == wanted
        await RisingEdge(dut.clk)
        if not en:
            continue
        values.append(None if polynomial else lookup(held[slot], x).tolist())
        results.append(evaluate_table(held[slot], x, low, high).tolist() if polynomial else None)
        shown = [values.popleft(), results.popleft()]
