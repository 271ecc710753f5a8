"""Bench of ``celosia.hdl.vector.kept_factors``: random NORM and SOFTMAX commands and row factors.

Parameters: ``config``, all fields of the configuration; ``commands``, the number of commands. The
field ``row_factors`` must be a power of two.
"""

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import COUNT_WIDTH, FACTOR_SHIFT, Engine
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.ports import command_layout
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack


@cocotb.test()
async def factors_have_their_numbers(dut: Any) -> None:
    """``KeptFactors`` outputs each row factor, a number that scales a row, with its storage index.

    The operand ``params`` of a command has the index of the command's first row; each further row
    has the next index, modulo ``row_factors``. The output ``norms`` is 1 while a factor of a NORM
    is missing, and ``softmaxes`` while a factor of a SOFTMAX is missing.
    """
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    count, layout = config.row_factors, command_layout(Engine.VECTOR)
    numbered = numbered_layout(count)
    width = factor_layout().size
    await start_clock(dut)
    norms: deque[int] = deque()  # numbers of the factors that are owed
    softmaxes: deque[int] = deque()
    done = {"norm": 0, "softmax": 0}
    while sum(done.values()) < settings["commands"]:
        owes = bool(norms), bool(softmaxes)
        first, rows = int(random.integers(count)), int(random.integers(1, count + 1))
        kind = str(random.choice(["norm", "softmax", *[""] * 18]))
        # No command starts while norm factors are owed, and no norm while softmax factors are.
        if norms or (kind == "norm" and softmaxes):
            kind = ""
        fields = {"m": rows, "params": first << FACTOR_SHIFT | int(random.integers(256))}
        dut.command.value = sum(value << layout[name].offset for name, value in fields.items())
        dut.norm.value, dut.softmax.value = int(kind == "norm"), int(kind == "softmax")
        factor, number = int(random.integers(1 << width)), None
        dut.factor__valid.value = dut.sum_factor__valid.value = 0
        dut.factor__payload.value = int(random.integers(1 << width))
        dut.sum_factor__payload.value = int(random.integers(1 << numbered.size))
        if any(owes) and random.random() < 0.4:
            number = (norms or softmaxes).popleft()
            name = "factor" if owes[0] else "sum_factor"
            shift = numbered["factor"].offset
            payload = factor if owes[0] else factor << shift | number
            getattr(dut, f"{name}__valid").value = 1
            getattr(dut, f"{name}__payload").value = payload
        await FallingEdge(dut.clk)
        assert (int(dut.norms.value), int(dut.softmaxes.value)) == owes
        assert int(dut.first.value) == first
        assert int(dut.o__valid.value) == int(number is not None)
        if number is not None:
            output = unpack(numbered, int(dut.o__payload.value))
            assert (output["number"], pack(factor_layout(), output["factor"])) == (number, factor)
        if kind:
            done[kind] += 1
            numbers = [(first + row) % count for row in range(rows)]
            (norms if kind == "norm" else softmaxes).extend(numbers)
        await RisingEdge(dut.clk)
    assert min(done.values()) > 5


@cocotb.test()
async def softmaxes_wait_for_factors_of_any_number_of_rows(dut: Any) -> None:
    """The output ``softmaxes`` of ``KeptFactors`` is 1 until each row of a SOFTMAX has its factor.

    The SOFTMAXes have 1, 2, 4 and so on rows, up to the largest number. For long SOFTMAXes the
    bench sends only the first factors, and ``softmaxes`` must stay 1.
    """
    settings = parameters()
    size, layout = Config.of(**settings["config"]).row_factors, command_layout(Engine.VECTOR)
    await start_clock(dut)
    for place in range(COUNT_WIDTH):
        rows = 1 << place
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        dut.command.value = rows << layout["m"].offset
        dut.softmax.value = 1
        await RisingEdge(dut.clk)
        dut.softmax.value = 0
        for _ in range(min(rows, 2 * size)):
            dut.sum_factor__valid.value = 1
            await FallingEdge(dut.clk)
            assert int(dut.softmaxes.value) == 1
            await RisingEdge(dut.clk)
        dut.sum_factor__valid.value = 0
        await FallingEdge(dut.clk)
        assert int(dut.softmaxes.value) == int(rows > 2 * size)
        await RisingEdge(dut.clk)
