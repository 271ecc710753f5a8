"""The whole accelerator: random programs under both simulators, and no logic of absent units."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.engines import matrix_engine, vector_engine
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.verify.configurations import UNITS, random_config
from tests.support.configurations import SMALLEST
from tests.support.longer import longer

FULL = PRESETS["tiny"].replace(lanes=2, rotary=True, argmax=True, wide_functions=True, sleep=True)
FULL = FULL.replace(wide_operands=True)
BARE = dict.fromkeys((*UNITS, "wide_functions", "wide_operands", "zero_points", "sleep"), False)
PACKED = {"weight_formats": "int4,ternary", "weight_group": 8}
REGISTERED = {"registered": True, "fused": True, "lanes": 2, "scratchpad_align": 2}
ALIGNED = {"scratchpad_align": 4, "lanes": 4, "rotary": True, "argmax": True}
PRODUCTS = PACKED | dict.fromkeys(("norm", "softmax", "activation", "fused"), False)
"""Without most units many commands are products."""


def run_case(config, simulator, seed, *, programs=1, steps=30, trials=0, verilog=None):
    config = config.replace(mem_addr_width=16)
    simulate(
        Accelerator(config),
        bench="celosia.tb.benches.bench_accelerator",
        simulator=simulator,
        seed=seed,
        parameters={
            "config": config.fields(),
            "programs": programs,
            "steps": steps,
            "trials": trials,
            "stall": 0.3,
            "latency": 20,
        },
        verilog=verilog,
    )


@pytest.mark.parametrize(
    ("preset", "changes", "simulator", "steps"),
    [
        ("odd", BARE, "icarus", 10),
        ("odd", {"weight_depth": 12, "array": "tree"}, "icarus", 10),
        ("tiny", REGISTERED | ALIGNED, "verilator", 60),
        ("tiny", {"weight_depth": 7, "wide_operands": True, **PRODUCTS}, "icarus", 20),
        *longer(
            ("odd", BARE, "icarus", 30),
            ("odd", {"weight_depth": 12, "array": "tree"}, "icarus", 30),
            ("tiny", REGISTERED, "icarus", 30),
            ("tiny", ALIGNED, "verilator", 30),
            ("tiny", {"weight_depth": 7, "wide_operands": True, **PACKED}, "icarus", 30),
            ("tiny", {"weight_depth": 7, "wide_operands": True, **PACKED}, "verilator", 30),
            ("tiny", {"scratchpad_align": 4, "lanes": 4, "wide_operands": True}, "verilator", 30),
            ("small", {"scratchpad_align": 2, "lanes": 2, "registered": True}, "verilator", 30),
        ),
    ],
)
def test_presets_with_changes(preset, changes, simulator, steps):
    # Products of packed weights and of 16-bit rows change writes of this seed, which are traced.
    config = PRESETS[preset].replace(**{"trace": True, **changes})
    run_case(config, simulator, seed=8, steps=steps)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes", [{"lanes": 2}, {"registered": True, "trace": True}], ids=["lanes", "registered"]
)
def test_runs_that_are_stopped_in_every_way(changes):
    config = PRESETS["tiny"].replace(watchdog=300, acc_depth=32, **changes)
    run_case(config, "verilator", seed=1, trials=40)


@pytest.mark.parametrize(("seed", "steps"), [(2, 8), *longer((3, 30))])
def test_a_machine_needs_no_reset_once_it_is_configured(seed, steps):
    # The Verilog is that of a case above; the program has every opcode of the vector engine.
    config = PRESETS["tiny"].replace(mem_addr_width=16, trace=True, **REGISTERED | ALIGNED)
    verilog, resets = re.subn(r"if \(rst\)", "if (1'b0)", kept_verilog(Accelerator(config), "top"))
    assert resets > 300
    run_case(config, "icarus", seed=seed, steps=steps, verilog=verilog)


def test_smallest_configuration():
    run_case(SMALLEST.replace(trace=True), "icarus", seed=19, steps=15)


@pytest.mark.parametrize(
    ("seed", "programs", "steps"), [(12, 1, 10), *longer((12, 4, 30), (13, 4, 30))]
)
def test_random_configurations(seed, programs, steps):
    config = random_config(np.random.default_rng(seed))
    run_case(config, "icarus", seed, programs=programs, steps=steps)


@cache
def netlist(component: Callable[[Config], Component], config: Config) -> str:
    """Return a component's Verilog without prefixes and comments, which may name absent units."""
    return re.sub(r"//.*|\btop_(?=[A-Z])", "", kept_verilog(component(config), "top"))


def register_bits(verilog: str) -> int:
    """Return the bits of all registers that the clock moves, of every instance of every module."""
    bodies = dict(re.findall(r"^module (\w+) (.*?)^endmodule", verilog, re.MULTILINE | re.DOTALL))

    @cache
    def bits(module: str) -> int:
        body = bodies[module]
        widths = {
            name: 1 + int(high or 0)
            for high, names in re.findall(r"\breg +(?:\[(\d+):0\] )?([\w, ]+)", body)
            for name in names.replace(" ", "").split(",")
        }
        clocked = re.findall(r"always @\(posedge clk\)\n    (\w+) <=", body)
        inner = re.findall(r"^  (\w+) \w+ \($", body, re.MULTILINE)
        return sum(widths[name] for name in clocked) + sum(map(bits, inner))

    return bits("top")


UNIT_NAMES = {
    "softmax": r"Softmax\w*|RowMaximum|RowWeights|RowDivide|DivideLane|OctaveExponential"
    r"|ColumnOffset",
    "norm": r"AddNorm\w*|NormFront|NormalizeLane|RowStatistics|SumWriter|s__request__\w+",
    "activation": r"LookupTable|table_write\w*|look_up_\w*",
    "wide_functions": r"FunctionTable|FunctionLane",
    "b_transpose": r"column_strobe_\w+|column_slot_\w+",
    "operand_gating": r"live_[io]|column_live|gated|zeros",
    "sleep": r"awake_[io]|SleepEdge",
    "wide_operands": r"times_256\w*",
    "rotary": r"RotaryUnit|rotary|rest_\w+|\w+_step_room",
    "argmax": r"ArgmaxUnit|argmax|largest__\w+",
}
"""Names of a unit's modules and ports that nothing else has."""


def test_a_machine_without_units_has_nothing_of_them():
    names = "|".join(UNIT_NAMES.values())
    # The Verilog is that of a case above; an engine with the units has their names, as below.
    config = PRESETS["odd"].replace(mem_addr_width=16, trace=True, **BARE)
    assert not re.findall(rf"\b(?:{names})\b", netlist(Accelerator, config))
    engines = netlist(vector_engine, FULL) + netlist(matrix_engine, FULL)
    for unit, own in UNIT_NAMES.items():
        assert re.search(rf"\b({own})\b", engines), unit


NEEDED_BY = {"activation": ("wide_functions",), "zero_points": ("wide_operands",)}
UNITS_OF = {
    vector_engine: ("norm", "activation", "wide_functions", "softmax", "rotary", "argmax"),
    matrix_engine: ("b_transpose", "operand_gating", "zero_points", "sleep", "wide_operands"),
}


@pytest.mark.parametrize(
    ("component", "units"),
    [
        (vector_engine, ("norm", "rotary")),
        (vector_engine, ("activation", "argmax")),
        (vector_engine, ("wide_functions", "softmax")),
        (matrix_engine, ("b_transpose", "sleep")),
        (matrix_engine, ("operand_gating", "wide_operands")),
        (matrix_engine, ("zero_points",)),
        *longer(*((engine, (unit,)) for engine, units in UNITS_OF.items() for unit in units)),
    ],
)
def test_units_left_out_leave_no_logic(component, units):
    absent = {*units, *(other for unit in units for other in NEEDED_BY.get(unit, ()))}
    full, without = FULL, FULL.replace(**dict.fromkeys(absent, False))
    for unit in UNIT_NAMES.keys() & set(units):
        assert re.search(rf"\b({UNIT_NAMES[unit]})\b", netlist(component, full))
        assert not re.findall(rf"\b(?:{UNIT_NAMES[unit]})\b", netlist(component, without))
    assert register_bits(netlist(component, without)) < register_bits(netlist(component, full))
